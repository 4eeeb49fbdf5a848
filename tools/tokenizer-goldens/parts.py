"""The goldens of single normalizers and pre-tokenizers: a line with the slot and the JSON of each, and a checksum of what it makes of every
ten texts or, for some normalizers, of every single character."""

import hashlib
import json

from tokenizers import Regex
from tokenizers import normalizers as norm
from tokenizers import pre_tokenizers as pre

from spans import byte_spans, show_spans

BEHAVIORS = ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]

NORMALIZERS = [
    norm.NFC(), norm.NFD(), norm.NFKC(), norm.NFKD(), norm.Lowercase(), norm.Strip(), norm.Strip(right=False), norm.StripAccents(), norm.Nmt(),
    norm.Prepend("▁"), norm.Replace(" ", "▁"), norm.Replace("a", ""), norm.Replace(Regex(r"\s+"), " "), norm.Replace(Regex(r"[^a-z]"), "xyz"),
    norm.Replace(Regex(r"x*"), "-"), norm.Replace(Regex(r"^.|.$"), "^"), norm.Replace(Regex(r"\b"), "|"), norm.Replace(Regex(r"\w+"), "w"),
    norm.Replace(Regex(r"[\w]+"), "w"), norm.Replace(Regex(r"\W"), ""), norm.Replace(Regex(r"\p{^L}\P{N}?"), "."), norm.Replace(Regex(r"(?i)the|a(?!n)"), "T"),
    norm.Replace(Regex(r"(?<=e)r|(?<!a)n++"), "R"), norm.Replace(Regex(r"o{,2}?l{2,}|\x{1ED9}|\u00e9|[\x41-\x43\-\]]"), "#"), norm.Replace(Regex(r"\d+(?:[.,]\d+)*"), "0"),
    norm.BertNormalizer(), norm.BertNormalizer(lowercase=False), norm.BertNormalizer(strip_accents=False), norm.BertNormalizer(clean_text=False),
    norm.BertNormalizer(handle_chinese_chars=False, lowercase=False, strip_accents=True), norm.ByteLevel(),
    norm.Sequence([norm.NFD(), norm.StripAccents(), norm.NFC()]), norm.Sequence([]),
]

PRE_TOKENIZERS = [
    pre.ByteLevel(), pre.ByteLevel(add_prefix_space=False), pre.ByteLevel(use_regex=False), pre.Whitespace(), pre.WhitespaceSplit(), pre.BertPreTokenizer(),
    pre.Digits(), pre.Digits(individual_digits=True), pre.Metaspace(), pre.Metaspace(prepend_scheme="first"), pre.Metaspace(prepend_scheme="never"),
    pre.Metaspace(split=False), pre.Metaspace(replacement="_"), pre.CharDelimiterSplit("e"), pre.Sequence([pre.Digits(), pre.ByteLevel(), pre.Punctuation()]),
    *(pre.Punctuation(b) for b in BEHAVIORS),
    *(pre.Split(p, b, invert=i) for b in BEHAVIORS for i in (False, True) for p in (" ", Regex(r"\s+|\p{N}"), Regex(r"\p{L}|\W"), Regex("z*"))),
]


def digest(n):
    """A checksum of what a normalizer makes of each character there is."""
    h = hashlib.sha256()
    for c in range(0x110000):
        if not 0xD800 <= c < 0xE000:
            h.update((n.normalize_str(chr(c)) + "\n").encode())
    return h.hexdigest()


def config(part, slot):
    """The JSON of a part, as a tokenizer.json has it."""
    from tokenizers import Tokenizer, models
    t = Tokenizer(models.BPE())
    setattr(t, slot, part)
    return json.loads(t.to_str())[slot]


def tens(check, outputs):
    return [check("\x00".join(outputs[i:i + 10])) for i in range(0, len(outputs), 10)]


def goldens(texts, check):
    for n in NORMALIZERS:
        yield ["normalizer", config(n, "normalizer"), tens(check, [n.normalize_str(t) for t in texts])]
    for p in PRE_TOKENIZERS:
        outputs = []
        for t in texts:
            pieces = p.pre_tokenize_str(t)
            outputs.append("\n".join(s for s, _ in pieces) + "\n" + show_spans(byte_spans(t, [a for _, a in pieces])))
        yield ["pre_tokenizer", config(p, "pre_tokenizer"), tens(check, outputs)]
    for n in (norm.NFC(), norm.NFD(), norm.NFKC(), norm.NFKD(), norm.Lowercase(), norm.StripAccents(), norm.Nmt(), norm.BertNormalizer(),
              norm.BertNormalizer(lowercase=False)):
        yield ["characters", config(n, "normalizer"), digest(n)]
