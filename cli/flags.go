package cli

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/alecthomas/kong"

	"github.com/snug-ml/snug/config"
)

// Tags of the grammar define what a command and its flags accept. Nothing that was typed is silently ignored.
//
//	settings:"all"         of a command: the settings (dotted flags) that it reads, by their names or the first
//	                       parts of these; no tag: none
//	min:"1", above:"0", max:"1"  bounds of a number or a duration
//	of:"threads"           what a number counts: an entry in the table of package config, which has its limit
//	empty:""               of a text: it may be empty
//	key:"run.out"          of a flag: the setting that it stands for
const (
	tagSettings = "settings"
	tagKey      = "key"
	tagEmpty    = "empty"
	tagOf       = "of"
)

// check rejects what the parser accepts but the command would ignore: a flag given twice, an empty text, a
// number out of bounds, a setting that the command does not read.
func check(k *kong.Context, overrides []config.Override) error {
	seen := map[string]bool{}
	for _, p := range k.Path {
		switch {
		case p.Positional != nil:
			if err := checkValue("<"+p.Positional.Name+">", p.Positional); err != nil {
				return err
			}
		case p.Flag != nil:
			name := "--" + p.Flag.Name
			if seen[name] && !p.Flag.IsCumulative() {
				return usage("%s: given twice", name)
			}
			seen[name] = true
			if err := checkValue(name, p.Flag.Value); err != nil {
				return err
			}
			key := p.Flag.Tag.Get(tagKey)
			if slices.ContainsFunc(overrides, func(o config.Override) bool { return o.Key == key }) {
				return usage("%s and --%s set the same thing: give only one", name, key)
			}
		}
	}
	verb := k.Selected()
	for _, o := range overrides {
		if err := readsSetting(verb, o.Key); err != nil {
			return err
		}
	}
	return nil
}

// typed returns a command as the user types it.
func typed(verb *kong.Node) string { return strings.TrimPrefix(verb.FullPath(), "snug ") }

// readsSetting rejects a setting that the command does not read.
func readsSetting(verb *kong.Node, key string) error {
	read := verb.Tag.Get(tagSettings)
	path := typed(verb)
	heads := strings.Split(read, ",")
	switch {
	case read == "":
		return usage("--%s: %s reads no settings", key, path)
	case read == "all", slices.ContainsFunc(heads, func(h string) bool { return key == h || strings.HasPrefix(key, h+".") }):
		return nil
	case strings.HasPrefix(key, "model."):
		return usage("--%s: the model comes from the checkpoint; %s cannot change it", key, path)
	}
	return usage("--%s: does nothing for %s, which reads %s", key, path, strings.Join(heads, ", "))
}

// checkValue checks a given value against the bounds in its tags.
func checkValue(name string, v *kong.Value) error {
	x := v.Target
	for x.Kind() == reflect.Pointer {
		x = x.Elem()
	}
	bad := func(got any) error { return usage("%s %v: want %s", name, got, bounds(v.Tag)) }
	switch {
	case x.Kind() == reflect.String:
		if x.String() == "" && !v.Tag.Has(tagEmpty) {
			return usage("%s: want a value, got an empty text", name)
		}
	case x.Kind() == reflect.Slice:
		if texts, ok := x.Interface().([]string); ok && (len(texts) == 0 || slices.Contains(texts, "")) {
			return usage("%s: want a value, got an empty text", name)
		}
	case x.Type() == reflect.TypeFor[time.Duration]():
		if !within(v.Tag, float64(x.Int())) {
			return bad(time.Duration(x.Int()))
		}
		return checkQuantity(name, v, time.Duration(x.Int()).String())
	case x.CanInt():
		if !within(v.Tag, float64(x.Int())) {
			return bad(x.Int())
		}
		return checkQuantity(name, v, strconv.FormatInt(x.Int(), 10))
	case x.CanUint():
		if !within(v.Tag, float64(x.Uint())) {
			return bad(x.Uint())
		}
	case x.CanFloat():
		if f := x.Float(); math.IsNaN(f) || math.IsInf(f, 0) || !within(v.Tag, f) {
			return bad(f)
		} else if e := config.Unheld(f); e != "" {
			return usage("%s %v: want %s", name, f, e)
		}
	}
	return nil
}

// checkQuantity rejects a number above the limit of what a flag counts.
func checkQuantity(name string, v *kong.Value, text string) error {
	if q := v.Tag.Get(tagOf); q != "" {
		if e := config.QuantityOf(q).Exceeds(text, v.Target.Type()); e != "" {
			return usage("%s %s: want %s", name, text, e)
		}
	}
	return nil
}

// bound parses a bound in a tag.
func bound(t *kong.Tag, name string) (float64, bool) {
	if !t.Has(name) {
		return 0, false
	}
	x, err := strconv.ParseFloat(t.Get(name), 64)
	if err != nil {
		panic(fmt.Sprintf("cli: tag %s:%q: %v", name, t.Get(name), err)) // an error in the grammar
	}
	return x, true
}

func within(t *kong.Tag, x float64) bool {
	least, hasLeast := bound(t, "min")
	above, hasAbove := bound(t, "above")
	most, hasMost := bound(t, "max")
	return !(hasLeast && x < least || hasAbove && x <= above || hasMost && x > most)
}

// bounds describes in words what the bounds of a tag allow.
func bounds(t *kong.Tag) string {
	var parts []string
	if t.Has("min") {
		parts = append(parts, t.Get("min")+" or more")
	}
	if t.Has("above") {
		parts = append(parts, "more than "+t.Get("above"))
	}
	if t.Has("max") {
		parts = append(parts, "at most "+t.Get("max"))
	}
	if len(parts) == 0 {
		return "a finite number"
	}
	return strings.Join(parts, " and ")
}

// parserWords rewrites the parser's messages about values in plain words.
var parserWords = strings.NewReplacer(
	`expected string value but got "EOL" (<EOL>)`, "want a value, got none",
	`expected file value but got "EOL" (<EOL>)`, "want a file, got none",
	`expected int value but got "EOL" (<EOL>)`, "want a whole number, got none",
	`expected int64 value but got "EOL" (<EOL>)`, "want a whole number, got none",
	`expected number value but got "EOL" (<EOL>)`, "want a number or auto, got none",
	`expected uint value but got "EOL" (<EOL>)`, "want a whole number of at least 0, got none",
	`expected float value but got "EOL" (<EOL>)`, "want a number, got none",
	`expected duration value but got "EOL" (<EOL>)`, "want a duration such as 30s or 5m, got none",
	`missing value, expecting "<arg>,..."`, "want a value, got none",
	"expected a valid 64 bit int but got", "want a whole number, got",
	"expected a valid 64 bit uint but got", "want a whole number of at least 0, got",
	"expected a float but got", "want a number, got",
	"expected duration but got", "want a duration such as 30s or 5m, got",
	`" (string)`, `"`,
)

var (
	unknownFlag  = regexp.MustCompile(`^unknown flag (--?[^\s,]+)`)
	missing      = regexp.MustCompile(`^expected "(<.*)"$`)
	badDuration  = regexp.MustCompile(`: time: .*`)
	tooLarge     = regexp.MustCompile(`want a whole number(, got "\d{19,}")`)
	tooLargeUint = regexp.MustCompile(`want a whole number of at least 0(, got "\d{20,}")`)
	negative     = regexp.MustCompile(`^-[0-9.]`)
	notAFlagHere = regexp.MustCompile(`^unexpected argument (help|version)\b.*`)
)

// joined joins a flag and a negative number after it into one argument, because the parser would take the
// number for a flag.
func joined(args []string) []string {
	var out []string
	for i := 0; i < len(args); i++ {
		if flag := args[i]; strings.HasPrefix(flag, "--") && !strings.Contains(flag, "=") && i+1 < len(args) && negative.MatchString(args[i+1]) {
			i++
			out = append(out, flag+"="+args[i])
			continue
		}
		out = append(out, args[i])
	}
	return out
}

// inUTF8 rejects arguments that are not UTF-8, in which the parser would silently replace bytes.
func inUTF8(args []string) error {
	for i, arg := range args {
		if utf8.ValidString(arg) {
			continue
		}
		flag, value, ok := strings.Cut(arg, "=")
		if !ok {
			flag, value = "", arg
			if i > 0 && strings.HasPrefix(args[i-1], "-") {
				flag = args[i-1]
			}
		}
		return usage("%s: want text in UTF-8; convert it (iconv -t UTF-8), or rename the file that it names", strings.TrimSpace(fmt.Sprintf("%s %.60q", flag, value)))
	}
	return nil
}

// explained adds to an error of the parser what to do about it.
func explained(err error) error {
	text := badDuration.ReplaceAllString(parserWords.Replace(err.Error()), "")
	text = missing.ReplaceAllString(text, "$1 is missing")
	text = tooLarge.ReplaceAllString(text, fmt.Sprintf("want at most %d$1", math.MaxInt64))
	text = tooLargeUint.ReplaceAllString(text, fmt.Sprintf("want at most %d$1", uint64(math.MaxUint64)))
	text = notAFlagHere.ReplaceAllString(text, "unexpected argument $1, did you mean --$1?")
	if m := unknownFlag.FindStringSubmatch(text); m != nil {
		if hint, ok := flagHint(m[1]); ok {
			return usage("unknown flag %s: %s", m[1], hint)
		}
	}
	verb := "snug"
	if e, ok := errors.AsType[*kong.ParseError](err); ok && e.Context != nil {
		node := e.Context.Model.Node
		if s := e.Context.Selected(); s != nil {
			node = s
			verb = s.FullPath()
		}
		if strings.HasPrefix(text, "expected one of ") || strings.HasPrefix(text, `expected "`) {
			text = "choose one of: " + strings.Join(verbs(node), ", ")
		}
	}
	if strings.HasSuffix(text, "?") {
		return usage("%s", text)
	}
	return usage("%s; see `%s --help`", text, verb)
}

// verbs lists the commands directly below a node.
func verbs(n *kong.Node) []string {
	var names []string
	for _, c := range n.Children {
		if !c.Hidden {
			names = append(names, c.Name)
		}
	}
	return names
}
