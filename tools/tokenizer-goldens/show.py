"""Prints what is behind the checksums of the goldens: python show.py TESTDATA KIND N"""

import gzip
import json
import pathlib
import sys

from tokenizers import Tokenizer

import make


def main():
    folder, kind, n = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    texts = json.loads(gzip.decompress((folder / "texts.json.gz").read_bytes()))
    t = Tokenizer.from_str(gzip.decompress((folder / f"{kind}.tokenizer.json.gz").read_bytes()).decode())
    print(repr(texts[n]))
    for fact in make.facts(t, texts[n], texts[(n + 1) % len(texts)]):
        print(repr(fact))


if __name__ == "__main__":
    main()
