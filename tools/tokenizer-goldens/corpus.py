"""The texts of the goldens: every awkward corner of Unicode, and words as Python's own library has them, in no order that means anything."""

import inspect
import io
import importlib
import random
import re
import unicodedata

MODULES = ("argparse asyncio.base_events collections concurrent.futures csv datetime decimal difflib email.message fractions functools heapq "
           "http.client inspect io ipaddress json logging multiprocessing.pool os pathlib pickle pydoc random re shutil socket sqlite3 "
           "statistics string subprocess tarfile tempfile textwrap threading tokenize turtle typing unittest urllib.request uuid zipfile").split()

SENTENCES = [
    "The quick brown fox jumps over the lazy dog; it wasn't amused, and they'll say we've seen IT'S BETTER.",
    "Chúng tôi đang tìm phòng trọ giá rẻ gần trường đại học, có ai biết chỗ nào không ạ?",
    "Tôi không thích điều này , nhưng đành chịu thôi .",
    unicodedata.normalize("NFD", "Đường Nguyễn Huệ ở thành phố Hồ Chí Minh rất đẹp vào buổi tối."),
    "مرحبا بالعالم، كيف حالك اليوم؟ ١٢٣٤٥ لَا إِلَٰهَ", "שָׁלוֹם עוֹלָם, מה שלומך?", "สวัสดีชาวโลก วันนี้อากาศดีมาก ๑๒๓",
    "नमस्ते दुनिया क्षत्रिय श्री", "বাংলা ভাষা আমার মাতৃভাষা", "தமிழ் மொழி இனிது", "你好，世界！今天天气很好。１２３ＡＢＣ",
    "こんにちは世界。カタカナとひらがな、漢字。ﾊﾝｶｸ ｶﾞ", "안녕하세요 세계! 한국어 텍스트입니다.", unicodedata.normalize("NFD", "안녕하세요 각"),
    "Привет, мир! Ёжик ЙОГУРТ", "Γειά σου Κόσμε ΌΣΟΣ ς", "Straße GROSSE İstanbul ıspanak ŉ ﬁnance ﬂuﬀy Ǆ ǅ ẞ", "Ünïcödé façade naïve coöperate Ångström",
    "👩‍👩‍👧‍👦 family 👍🏽 thumbs 🇻🇳🇩🇪🇺 flags 🏴󠁧󠁢󠁥󠁮󠁧󠁿 ❤️‍🔥 1️⃣ #️⃣", "ℌ𝔢𝔩𝔩𝔬 𝕎𝕠𝕣𝕝𝕕 ① ½ ⅷ ² ㎏ ℃ Ⅻ ﷺ", "a\u0301\u0323 e\u0302\u0301 o\u031b\u0323 \u0301alone",
    "zero\u200bwidth\u200cnon\u200djoiner\u2060word\ufeffbom", "nb\u00a0space thin\u2009space ideographic\u3000space line\u2028para\u2029end\x85nel",
    "tabs\tand\nnew\r\nlines\r\n\r\n  indented\n\n\n    more   \t  \n", "trailing spaces    ", "    leading spaces", "        ", "\n\n\n", "\t", " ", "",
    "x=1;y==2!=3<=4>=5&&6||7//8/*9*/{[(<>)]}$%^&*_-+~`'\"\\?.,:;@#", "https://example.com/a/b?c=d&e=f#g user@example.org 192.168.0.1 3.14159e-10",
    "don't DON'T Don't 'tis 'S ''s 'LL 'll 're 'RE it\u017fs '\u017f we\u2019ve", "0 00 000 0000 00000 1234567890 12,345.67 1_000 0x1F ٣٤ ⅧⅨ",
    "camelCaseWord HTTPServer iPhone XMLHttpRequest ABCdef ABC dEF Éa ÉA éA Ǆa", "a" * 300, "ab" * 150, "1" * 200, "!" * 150, " " * 130, "é" * 120, "ह" * 90,
    "e" + "\u0301\u0323" * 40, "\u0301" * 35 + "x", "Ġ Ċ ▁▁ ## ##ing ▁the <0x0A> <0xE4> </w> @@ @@ing", "\x00\x01\x02\x07\x0b\x0c\x1b[0m\x7f\x80\x9f",
    "\ufffd \ufffe \uffff \U0010ffff \ue000 \U000f0000 \U000e0001 \U00030000 \U000323af\U0002ebf0\U0001e4d0", "\u0600\u0601 12 \u06dd345 \u08e2",
    "\r", "\r\r\n", "\u0e01\u0e33 \u0e40\u0e01\u0e34\u0e19", "k\u0308\u200d\u0308 \u1100\u1161\u11a8\u0308 \u0915\u094d\u0937\u0308 \u0915\u0301",
]

POOLS = [
    [chr(c) for c in range(0x20, 0x7F)] * 2,
    [chr(c) for c in range(0xA0, 0x250)],
    [chr(c) for c in range(0x300, 0x370)],
    [chr(c) for c in range(0x370, 0x530)],
    [chr(c) for c in range(0x590, 0x780)],
    [chr(c) for c in range(0x900, 0xE80)],
    [chr(c) for c in range(0x1E00, 0x2000)],
    [chr(c) for c in range(0x2000, 0x2070)],
    [chr(c) for c in range(0x2070, 0x2BFF)],
    [chr(c) for c in range(0x3000, 0x3400)],
    [chr(c) for c in range(0x4E00, 0x4F00)],
    [chr(c) for c in range(0xAC00, 0xAD00)] + [chr(c) for c in range(0x1100, 0x1200)],
    [chr(c) for c in range(0xF900, 0xFE00)],
    [chr(c) for c in range(0xFE00, 0x10000)],
    [chr(c) for c in range(0x1D400, 0x1D800)],
    [chr(c) for c in range(0x1F300, 0x1FAFF)] + ["\u200d", "\ufe0f"] * 100,
    list(" \t\n\r\u00a0\u2003\u3000\x85\x0b\x0c\u200b") * 3,
    list("aeiouyAEIOUYdĐđnsSfilt") + list("\u0301\u0300\u0309\u0303\u0323\u0302\u0306\u031b") * 2,
]

MARKUP = ["<s>", "</s>", "<pad>", "<unk>", "<mask>", "[CLS]", "[SEP]", "[MASK]", "[UNK]", "[PAD]", "<|endoftext|>", "<|eot|>", "<|end", "  ", "    ", "word", "NEW",
          "new", "Ångström", "ﬁx", "<mask> ", " <mask>", "<s><s>", "▁", " ##"]


def documents():
    """Documentation strings and source lines of the standard library."""
    out = []
    for name in MODULES:
        module = importlib.import_module(name)
        out.extend(p for p in (inspect.getdoc(module) or "").split("\n\n"))
        for _, thing in sorted(vars(module).items(), key=lambda kv: kv[0]):
            if (inspect.isclass(thing) or inspect.isfunction(thing)) and getattr(thing, "__module__", "") == module.__name__:
                out.extend((inspect.getdoc(thing) or "").split("\n\n"))
        out.extend(io.StringIO(inspect.getsource(module)).read().split("\n\n"))
    return [p for p in out if p.strip()]


def salad(rng, words):
    """Some words, now and then with what stands between words."""
    out = []
    for _ in range(rng.randrange(2, 25)):
        word = rng.choice(words)
        out.append(rng.choice([word, word, word, word.capitalize(), word.upper(), word + rng.choice(".,;:!?)"), rng.choice("('\"") + word, word + "'s",
                               str(rng.randrange(10 ** rng.randrange(1, 7))), word + rng.choice("_-./=(") + rng.choice(words)]))
        out.append(rng.choice([" "] * 12 + ["  ", "\n", "\n    ", "\t", " -- "]))
    return "".join(out)


def awkward(rng):
    kind = rng.randrange(10)
    if kind < 3:  # characters of one or two scripts
        pools = rng.sample(POOLS, rng.choice([1, 2, 2, 3]))
        return "".join(rng.choice(rng.choice(pools)) for _ in range(rng.randrange(1, 40)))
    if kind < 5:  # sentences with something put into them
        words = rng.choice(SENTENCES).split(" ")
        for _ in range(rng.randrange(1, 4)):
            words.insert(rng.randrange(len(words) + 1), rng.choice(MARKUP + ["", "", "\n", "👍🏽", "…", rng.choice(rng.choice(POOLS))]))
        return " ".join(words[:25])
    if kind == 5:  # any characters at all
        out = []
        while len(out) < rng.randrange(1, 20):
            c = rng.randrange(0x110000) if rng.random() < 0.3 else rng.randrange(0x3000)
            if not 0xD800 <= c < 0xE000:
                out.append(chr(c))
        return "".join(out)
    if kind == 6:  # parts of sentences, glued
        return "".join(s[a:a + rng.randrange(1, 12)] for s in rng.choices(SENTENCES, k=4) for a in [rng.randrange(len(s) + 1)])
    if kind == 7:  # another normalization form or case
        s = rng.choice(SENTENCES)[:80]
        s = unicodedata.normalize(rng.choice(["NFC", "NFD", "NFKC", "NFKD"]), s)
        return rng.choice([str, str.upper, str.lower, str.title, str.swapcase])(s)
    if kind == 8:  # letters and marks in a heap
        return "".join(rng.choice(POOLS[-1] + [" "]) for _ in range(rng.randrange(1, 60)))
    return rng.choice(MARKUP).join(rng.choice(["a", "b ", " c", "", "x1", "é", "한", " "]) for _ in range(rng.randrange(2, 6)))


def texts(count=2100, seed=7):
    rng = random.Random(seed)
    words = re.findall(r"[A-Za-z]+", " ".join(documents()))
    out = list(SENTENCES)
    seen = set(out)
    while len(out) < count:
        s = salad(rng, words) if rng.random() < 0.3 else awkward(rng)
        if s not in seen:
            seen.add(s)
            out.append(s)
    return out
