"""Makes the goldens of data/token with Hugging Face's tokenizers: small tokenizers of every kind, and what they make of the corpus.

    python -m venv venv && venv/bin/pip install tokenizers transformers sentencepiece protobuf
    venv/bin/python make.py ../../data/token/testdata        # or: make.py DIR kind ...

Written are texts.json.gz, the corpus; KIND.tokenizer.json.gz; KIND.golden.gz, with a line for each text; and parts.golden.gz. Numbers
that are only compared are written as checksums, so that the files stay small: `show.py KIND N` prints what is behind them.
"""

import collections
import gzip
import itertools
import json
import pathlib
import random
import sys
import tempfile
import zlib

import sentencepiece
from tokenizers import AddedToken, Regex, SentencePieceBPETokenizer, Tokenizer, decoders, models, processors, trainers
from tokenizers import normalizers as norm
from tokenizers import pre_tokenizers as pre

import corpus
import parts
from spans import byte_spans, show_spans

GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
# No scanner knows these: they are cut by the regular expressions themselves.
PLAIN = [r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+", r"[!-/:-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"]


def split(pattern):
    return pre.Split(Regex(pattern), "isolated")


def byte_bpe(pre_tokenizer, specials, normalizer=None, size=2500, **model):
    t = Tokenizer(models.BPE(**model))
    if normalizer:
        t.normalizer = normalizer
    t.pre_tokenizer = pre_tokenizer
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(DOCUMENTS, trainers.BpeTrainer(
        vocab_size=size, show_progress=False, special_tokens=specials, initial_alphabet=pre.ByteLevel.alphabet()))
    return t


def edit(t, change):
    """Changes what only the file can say."""
    d = json.loads(t.to_str())
    change(d)
    return Tokenizer.from_str(json.dumps(d))


def gpt2():
    """Trained on the corpus itself, so that the training here can be compared."""
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    t.train_from_iterator(TEXTS, trainers.BpeTrainer(
        vocab_size=3000, min_frequency=2, show_progress=False, special_tokens=["<|endoftext|>"], initial_alphabet=pre.ByteLevel.alphabet()))
    return t


def neox():
    t = byte_bpe(pre.ByteLevel(add_prefix_space=False), ["<|endoftext|>", "<|padding|>"], norm.NFC())
    t.add_tokens([AddedToken(" " * n, normalized=True) for n in range(24, 1, -1)])
    t.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=True)
    return t


def roberta():
    t = byte_bpe(pre.ByteLevel(add_prefix_space=True), ["<s>", "<pad>", "</s>", "<unk>", AddedToken("<mask>", lstrip=True, special=True)])
    t.add_tokens([AddedToken("word", single_word=True), AddedToken("NEW", rstrip=True, normalized=False), AddedToken("Ångström", normalized=True)])
    t.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=True, add_prefix_space=True)
    return t


def roberta_alphabet():
    """Bytes that training did not see are not in the vocabulary, and are dropped; truncated and padded on the left."""
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre.ByteLevel(add_prefix_space=True)
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(DOCUMENTS, trainers.BpeTrainer(vocab_size=600, show_progress=False, special_tokens=["<s>", "</s>", "<pad>"]))
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True, add_prefix_space=False), processors.TemplateProcessing(
        single="<s>:3 $A:1 </s>:2", pair="<s> $A:0 </s> $B:4 </s>:4 </s>", special_tokens=[("<s>", 0), ("</s>", 1)])])
    t.enable_truncation(24, strategy="longest_first", direction="left")
    t.enable_padding(direction="left", pad_id=2, pad_token="<pad>", pad_type_id=7, pad_to_multiple_of=8)
    return t


def llama3():
    t = byte_bpe(pre.Sequence([split(LLAMA3), pre.ByteLevel(add_prefix_space=False, use_regex=False)]), [])
    words = [" description", " configuration", "configurationError", " whole", "wholeword"]

    def whole_words(d):
        d["model"]["ignore_merges"] = True
        vocab = d["model"]["vocab"]
        for word in words:
            vocab.setdefault("".join("Ġ" if c == " " else c for c in word), len(vocab))
    t = edit(t, whole_words)
    t.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>", "<|eot|>", "<|endoftext|>"])
    begin = t.token_to_id("<|begin_of_text|>")
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), processors.TemplateProcessing(
        single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|>:1 $B:1", special_tokens=[("<|begin_of_text|>", begin)])])
    return t


def qwen2():
    t = byte_bpe(pre.Sequence([split(QWEN2), pre.ByteLevel(add_prefix_space=False, use_regex=False, trim_offsets=False)]), [], norm.NFC())
    t.add_special_tokens(["<|endoftext|>", "<|im_start|>"])
    t.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=False)
    return t


def o200k():
    return byte_bpe(pre.Sequence([split(O200K), pre.ByteLevel(add_prefix_space=False, use_regex=False)]), ["<|endoftext|>"])


def plain_regex():
    return byte_bpe(pre.Sequence([*map(split, PLAIN), pre.ByteLevel(add_prefix_space=False, use_regex=False)]), ["<|endoftext|>"])


def clip():
    t = Tokenizer(models.BPE(unk_token="<|endoftext|>", end_of_word_suffix="</w>"))
    t.normalizer = norm.Sequence([norm.NFC(), norm.Replace(Regex(r"\s+"), " "), norm.Lowercase()])
    t.pre_tokenizer = pre.Sequence([
        pre.Split(Regex(r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"), "removed", invert=True), pre.ByteLevel(add_prefix_space=False)])
    t.decoder = decoders.BPEDecoder("</w>")
    t.train_from_iterator(DOCUMENTS, trainers.BpeTrainer(vocab_size=2000, show_progress=False, special_tokens=["<|startoftext|>", "<|endoftext|>"],
                                                         initial_alphabet=pre.ByteLevel.alphabet(), end_of_word_suffix="</w>"))
    t.post_processor = processors.RobertaProcessing(("<|endoftext|>", 1), ("<|startoftext|>", 0), trim_offsets=False, add_prefix_space=False)
    return t


def llama2():
    t = SentencePieceBPETokenizer()
    t.train_from_iterator(DOCUMENTS, vocab_size=1500, show_progress=False, limit_alphabet=90,
                          special_tokens=["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256))])
    d = json.loads(t.to_str())
    d["model"].update(byte_fallback=True, fuse_unk=True, unk_token="<unk>")
    d["added_tokens"] = d["added_tokens"][:3]
    t = Tokenizer.from_str(json.dumps(d))
    t.normalizer = norm.Sequence([norm.Prepend("▁"), norm.Replace(" ", "▁")])
    t.pre_tokenizer = None
    t = edit(t, lambda d: d.update(pre_tokenizer=None))
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)])
    return t


def bpe_unknown(fuse):
    """BPE over characters, with a prefix inside words and few of the byte tokens, so that unknown text stays unknown."""
    t = Tokenizer(models.BPE(unk_token="[UNK]", continuing_subword_prefix="##", fuse_unk=fuse))
    t.normalizer = norm.Sequence([norm.NFKC(), norm.Strip(), norm.StripAccents()])
    t.pre_tokenizer = pre.Sequence([pre.WhitespaceSplit(), pre.Digits(individual_digits=False)])
    t.train_from_iterator(DOCUMENTS, trainers.BpeTrainer(vocab_size=1200, show_progress=False, special_tokens=["[UNK]", "<0xC3>", "<0x83>"],
                                                         limit_alphabet=80, continuing_subword_prefix="##"))
    return edit(t, lambda d: d["model"].update(byte_fallback=fuse))


def bert(lower):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=100))
    t.normalizer = norm.BertNormalizer(lowercase=lower)
    t.pre_tokenizer = pre.BertPreTokenizer()
    t.decoder = decoders.WordPiece(cleanup=lower)
    t.train_from_iterator(itertools.chain(DOCUMENTS, TEXTS), trainers.WordPieceTrainer(
        vocab_size=3000, show_progress=False, limit_alphabet=700, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
    if lower:
        t.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
                                                         special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    else:
        t.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
        t.add_tokens([AddedToken("NEW", single_word=True), AddedToken("word", normalized=True, lstrip=True, rstrip=True)])
        t.enable_truncation(16, strategy="longest_first")
        t.enable_padding(length=12)
    return t


def sentencepiece_model(**options):
    """A SentencePiece model: its pieces and its precompiled character map."""
    with tempfile.TemporaryDirectory() as d:
        text = pathlib.Path(d, "text")
        text.write_text("\n".join(line for doc in itertools.chain(DOCUMENTS[:4000], TEXTS) for line in doc.splitlines()
                                  if "\x00" not in line), encoding="utf-8", errors="replace")
        sentencepiece.SentencePieceTrainer.train(
            input=str(text), model_prefix=str(pathlib.Path(d, "m")), model_type="unigram", num_threads=1, minloglevel=2, **options)
        from sentencepiece import sentencepiece_model_pb2 as pb
        m = pb.ModelProto.FromString(pathlib.Path(d, "m.model").read_bytes())
    return [(p.piece, p.score) for p in m.pieces], m.normalizer_spec.precompiled_charsmap


def unigram():
    """In the manner of XLM-RoBERTa and T5."""
    vocab, charsmap = sentencepiece_model(vocab_size=2500, character_coverage=0.98, normalization_rule_name="nmt_nfkc", hard_vocab_limit=False)
    t = Tokenizer(models.Unigram(vocab, 0))
    t.normalizer = norm.Sequence([norm.Precompiled(charsmap), norm.Replace(Regex(" {2,}"), " ")])
    t.pre_tokenizer = pre.Sequence([pre.WhitespaceSplit(), pre.Metaspace()])
    t.decoder = decoders.Metaspace()
    t.add_special_tokens(["<s>", "</s>", AddedToken("<mask>", lstrip=True)])
    t.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 2)])
    return t


def unigram_bytes():
    """With bytes for what is unknown, and lower case without regard to Unicode's forms."""
    vocab, charsmap = sentencepiece_model(vocab_size=2000, character_coverage=0.98, normalization_rule_name="nmt_nfkc_cf", byte_fallback=True,
                                          hard_vocab_limit=False)
    t = Tokenizer(models.Unigram(vocab, 0, True))
    t.normalizer = norm.Precompiled(charsmap)
    t.pre_tokenizer = pre.Metaspace(prepend_scheme="first", split=False)
    t.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="first")])
    t.add_tokens(["word", AddedToken("<pad>", special=True)])
    return t


def word_level():
    t = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    t.normalizer = norm.Sequence([norm.NFKD(), norm.StripAccents(), norm.Lowercase(), norm.Nmt()])
    t.pre_tokenizer = pre.Sequence([pre.Whitespace(), pre.Punctuation("isolated"), pre.Digits(individual_digits=True)])
    t.train_from_iterator(itertools.chain(DOCUMENTS, TEXTS), trainers.WordLevelTrainer(vocab_size=3000, show_progress=False, special_tokens=["[UNK]"]))
    return t


def phobert(folder):
    """PhoBERT's two files, and its tokenizer by transformers. Some tokens that merges make are left out of the vocabulary."""
    from transformers import PhobertTokenizer
    t = Tokenizer(models.BPE(end_of_word_suffix="</w>"))
    t.pre_tokenizer = pre.WhitespaceSplit()
    vietnamese = [s for s in corpus.SENTENCES[1:4] for _ in range(40)]
    documents = [d.replace("\x00", "") for d in itertools.chain(DOCUMENTS[:3000], vietnamese, TEXTS)]
    t.train_from_iterator(documents, trainers.BpeTrainer(vocab_size=3000, show_progress=False, limit_alphabet=300, end_of_word_suffix="</w>"))
    counts = collections.Counter(
        token.removesuffix("</w>") if token.endswith("</w>") else token + "@@" for d in documents for token in t.encode(d).tokens)
    merges = json.loads(t.to_str())["model"]["merges"]
    (folder / "bpe.codes").write_text("".join(f"{a} {b} {3000 - i}\n" for i, (a, b) in enumerate(merges)))
    (folder / "vocab.txt").write_text("".join(f"{token} {n}\n" for token, n in counts.most_common(1800)
                                              if token not in ("<s>", "<pad>", "</s>", "<unk>", "<mask>")))
    return PhobertTokenizer(str(folder / "vocab.txt"), str(folder / "bpe.codes"))


def write_phobert(out):
    with tempfile.TemporaryDirectory() as d:
        folder = pathlib.Path(d)
        t = phobert(folder)
        for name in "vocab.txt", "bpe.codes":
            write(out / f"phobert.{name}.gz", (folder / name).read_bytes())
    golden = []
    for text, other in zip(TEXTS, TEXTS[1:] + TEXTS[:1]):
        ids = t(text, add_special_tokens=False).input_ids
        show = [
            t.decode(ids, clean_up_tokenization_spaces=False),
            t.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False),
            " ".join(map(str, t(text).input_ids)),
            " ".join(map(str, t(text, other).input_ids)),
        ]
        golden.append([ids, *map(check, show)])
    write(out / "phobert.golden.gz", lines(golden))
    print("phobert", len(t), flush=True)


KINDS = {
    "gpt2": gpt2, "neox": neox, "roberta": roberta, "roberta-alphabet": roberta_alphabet, "llama3": llama3, "qwen2": qwen2, "o200k": o200k,
    "plain-regex": plain_regex, "clip": clip, "llama2": llama2, "bpe-unknown": lambda: bpe_unknown(False), "bpe-fused": lambda: bpe_unknown(True),
    "bert-uncased": lambda: bert(True), "bert-cased": lambda: bert(False), "unigram": unigram, "unigram-bytes": unigram_bytes, "word-level": word_level,
}


def check(s):
    return zlib.crc32(s.encode("utf-8"))


def prepared(e, *texts):
    """All of an encoding as one line: id:type, then the span if it is of a text, or + for a token put there, or . for padding."""
    out = []
    for id, kind, span, sequence, mask in zip(e.ids, e.type_ids, e.offsets, e.sequence_ids, e.attention_mask):
        where = "." if not mask else "+"
        if mask and sequence is not None:
            where = show_spans(byte_spans(texts[sequence], [span]))
        out.append(f"{id}:{kind}:{where}")
    return " ".join(out)


def facts(t, text, other):
    """What a line of the goldens says of a text: its ids and, as checksums, ids without special tokens, decoded texts and prepared encodings."""
    bare = Tokenizer.from_str(t.to_str())
    bare.no_truncation()
    bare.no_padding()
    e = bare.encode(text, add_special_tokens=False)
    bare.encode_special_tokens = True
    ordinary = bare.encode(text, add_special_tokens=False)
    return [
        e.ids,
        " ".join(map(str, ordinary.ids)),
        t.decode(e.ids, skip_special_tokens=False),
        t.decode(e.ids, skip_special_tokens=True),
        prepared(t.encode(text), text),
        prepared(t.encode(text, other), text, other),
    ]


def write(path, data):
    with open(path, "wb") as f, gzip.GzipFile(filename="", mode="wb", fileobj=f, compresslevel=9, mtime=0) as z:
        z.write(data)


def lines(items):
    return "".join(json.dumps(i, separators=(",", ":"), ensure_ascii=False) + "\n" for i in items).encode()


def random_ids(t):
    """Ids as a model might write them, and the text they make."""
    rng = random.Random(3)
    for _ in range(200):
        ids = [rng.randrange(t.get_vocab_size()) for _ in range(rng.randrange(1, 12))]
        yield [ids, check(t.decode(ids, skip_special_tokens=False))]


def main():
    out = pathlib.Path(sys.argv[1])
    names = sys.argv[2:] or [*KINDS, "phobert", "parts"]
    write(out / "texts.json.gz", json.dumps(TEXTS, ensure_ascii=False).encode())
    for name in names:
        if name == "parts":
            write(out / "parts.golden.gz", lines(parts.goldens(TEXTS, check)))
            continue
        if name == "phobert":
            write_phobert(out)
            continue
        t = Tokenizer.from_str(KINDS[name]().to_str())  # as it is read back: numbers lose a bit on the way
        write(out / f"{name}.tokenizer.json.gz", t.to_str().encode())
        golden = []
        for text, other in zip(TEXTS, TEXTS[1:] + TEXTS[:1]):
            ids, *rest = facts(t, text, other)
            golden.append([ids, *map(check, rest)])
        write(out / f"{name}.golden.gz", lines(golden) + lines(random_ids(t)))
        print(name, t.get_vocab_size(), flush=True)


TEXTS = corpus.texts()
DOCUMENTS = corpus.documents()

if __name__ == "__main__":
    main()
