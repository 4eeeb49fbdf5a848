# Takes the line directives out of clang's PTX, and writes the table of package lines to the file TABLE: the
# names of the sources, then for each kernel "=NAME" and one row per change, "LINES FILE LINE", where LINES
# counts the lines of PTX since the previous change and FILE is the index of a name.
/^[ \t]*\.file[ \t]/ {
  name = $3
  gsub(/"/, "", name)
  sub(/.*\//, "", name)
  names[$2] = name
  if ($2 + 0 > files) files = $2 + 0
  next
}
/^[ \t]*\.loc[ \t]/ { place = $2 " " $3; next }
/^[ \t]*\.section[ \t]/ || /^\$L__(tmp|func_begin|func_end)[0-9]+:$/ { next }
{ print }
/^\.visible \.entry / {
  kernel = $3
  sub(/\(.*/, "", kernel)
  rows[++n] = "=" kernel
}
/^\{/ { inside = kernel != ""; at = since = 0; place = last = ""; next }
/^\}/ { inside = 0; kernel = ""; next }
inside {
  at++
  if (place != last) {
    rows[++n] = (at - since) " " place
    since = at
    last = place
  }
}
END {
  for (i = 1; i <= files; i++) print names[i] >TABLE
  for (i = 1; i <= n; i++) print rows[i] >TABLE
}
