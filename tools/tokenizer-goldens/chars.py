"""Writes data/token/chars.txt: which characters belong to the classes that Hugging Face's tokenizers library uses.

Its parts carry Unicode tables of different ages (its regular expressions, Rust's own, its normalization and its categories), so the
classes are asked of the library itself, one character at a time, rather than taken from any one version of Unicode.

    python chars.py > ../../data/token/chars.txt
"""

import tokenizers
from tokenizers import Regex
from tokenizers import normalizers as norm
from tokenizers import pre_tokenizers as pre

ALL = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def changed(n, probe="%s"):
    """The characters c for which n changes probe % c."""
    return [c for c in ALL if n.normalize_str(probe % chr(c)) != probe % chr(c)]


def removed(n):
    return [c for c in ALL if n.normalize_str(chr(c)) == ""]


def regex(pattern):
    return removed(norm.Replace(Regex(pattern), ""))


def cut(p):
    """The characters at which p cuts a word."""
    return [c for c in ALL if len(p.pre_tokenize_str("a" + chr(c) + "a")) > 1]


def bert(**on):
    flags = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    return norm.BertNormalizer(**{**flags, **on})


def runs(points):
    """Cuts sorted numbers into runs (first, last, step) of step 1 or 2."""
    out = []
    for p in points:
        if out:
            first, last, step = out[-1]
            if p - last == step or first == last and p - last <= 2:
                out[-1] = (first, p, p - last)
                continue
        out.append((p, p, 1))
    return out


def show(first, last, step):
    if first == last:
        return f"{first:X}"
    return f"{first:X}-{last:X}" + (f"/{step}" if step > 1 else "")


def write(name, comment, points):
    write_runs(name, comment, [show(*r) for r in runs(points)])


def write_runs(name, comment, items):
    print(f"\n# {comment}\n{name}:")
    line = ""
    for item in items:
        if len(line) + len(item) > 136:
            print(line)
            line = ""
        line += " " + item
    print(line)


print(f"# Made by tools/tokenizer-goldens/chars.py with tokenizers {tokenizers.__version__}. A run is first-last or first-last/step, in hex.")

write("letter", r"\p{L} of the regular expressions", regex(r"\p{L}"))
write("number", r"\p{N} of the regular expressions", regex(r"\p{N}"))
write("upper", r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}] of the regular expressions", regex(r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"))
write("lower", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}] of the regular expressions", regex(r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"))
write("word", r"\w of the Whitespace pre-tokenizer and of single-word tokens",
      sorted(set(ALL) - set(cut(pre.Whitespace()))))
write("digit", "what the Digits pre-tokenizer cuts at", cut(pre.Digits(individual_digits=True)))
write("punctuation", "what the Punctuation pre-tokenizer cuts at", cut(pre.Punctuation()))
write("control", "what BertNormalizer's clean_text removes", removed(bert(clean_text=True)))
write("nonspacing", "what BertNormalizer's strip_accents removes", removed(bert(strip_accents=True)))
write("mark", "what StripAccents removes", removed(norm.StripAccents()))
write("canonical", "characters with a canonical decomposition", changed(norm.NFD()))
write("compatibility", "characters with a decomposition of any kind", changed(norm.NFKD()))
# A mark of class 1 to 229 moves before an acute accent (230); one of class 2 or more lets a tilde overlay (1) move before it.
moves = set(changed(norm.NFD(), "\u0301%s")) | set(changed(norm.NFD(), "%s\u0334"))
write("moving", "marks with a canonical combining class other than 0 (only marks that do not decompose)",
      sorted(moves - set(changed(norm.NFD()))))

lower = {}
for c in ALL:
    s = norm.Lowercase().normalize_str(chr(c))
    if len(s) == 1 and s != chr(c):
        lower.setdefault(ord(s) - c, []).append(c)
write_runs("lowercase", "lower case: a run, then how far up (+) or down (_) its lower case is; without U+0130, which becomes i and U+0307", [
    show(*r) + ("+" if delta > 0 else "_") + str(abs(delta))
    for r, delta in sorted((r, delta) for delta, points in lower.items() for r in runs(points))])
