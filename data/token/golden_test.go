package token

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode"
	"unicode/utf8"
)

// The goldens are made by tools/tokenizer-goldens with Hugging Face's own library.

func unzip(t testing.TB, name string) []byte {
	t.Helper()
	packed, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func unjson[T any](t testing.TB, raw []byte) (v T) {
	t.Helper()
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("%v in %.80s", err, raw)
	}
	return v
}

var goldenTexts = sync.OnceValue(func() []string {
	var t testing.T
	return unjson[[]string](&t, unzip(&t, "texts.json.gz"))
})

// goldenLines reads the lines of a golden file.
func goldenLines(t testing.TB, name string) (lines [][]json.RawMessage) {
	t.Helper()
	s := bufio.NewScanner(bytes.NewReader(unzip(t, name)))
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		lines = append(lines, unjson[[]json.RawMessage](t, s.Bytes()))
	}
	return lines
}

var goldenKinds = []string{
	"gpt2", "neox", "roberta", "roberta-alphabet", "llama3", "qwen2", "o200k", "plain-regex", "clip", "llama2", "bpe-unknown", "bpe-fused",
	"bert-uncased", "bert-cased", "unigram", "unigram-bytes", "word-level",
}

func goldenTokenizer(t testing.TB, kind string) *Tokenizer {
	t.Helper()
	tok, err := Parse(kind, unzip(t, kind+".tokenizer.json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func showSpans(spans []Span) string {
	var b strings.Builder
	for i, s := range spans {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%d-%d", s.Start, s.End)
	}
	return b.String()
}

func showIDs(ids []int32) string {
	s := fmt.Sprint(ids)
	return s[1 : len(s)-1]
}

// showPieces returns the goldens' line for a prepared encoding.
func showPieces(pieces []Piece) string {
	var out []string
	for _, p := range pieces {
		where := showSpans([]Span{p.Span})
		if p.Unseen {
			where = "."
		} else if p.Added {
			where = "+"
		}
		out = append(out, fmt.Sprintf("%d:%d:%s", p.ID, p.Type, where))
	}
	return strings.Join(out, " ")
}

func prepare(tok *Tokenizer, texts ...string) string {
	pieces, err := tok.Prepare(texts...)
	if err != nil {
		return err.Error()
	}
	return showPieces(pieces)
}

// leftOut reports whether -short leaves out the i-th of the texts, or of tens of them.
func leftOut(i int) bool { return testing.Short() && i%4 != 0 }

func TestGolden(t *testing.T) {
	texts := goldenTexts()
	for _, kind := range goldenKinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			tok := goldenTokenizer(t, kind)
			lines := goldenLines(t, kind+".golden.gz")
			failed := map[string]int{}
			for i, text := range texts {
				if leftOut(i) {
					continue
				}
				want := unjson[[]int32](t, lines[i][0])
				got := tok.Encode(nil, text)
				if !slices.Equal(got, want) {
					if failed["ids"]++; failed["ids"] < 4 {
						t.Errorf("text %d %q: ids\n got %v %q\nwant %v %q", i, text, got, spell(tok, got), want, spell(tok, want))
					}
					continue
				}
				pieces := tok.pieces(text, 0)
				ids := make([]int32, len(pieces))
				for i, p := range pieces {
					ids[i] = p.ID
				}
				if !slices.Equal(ids, want) {
					t.Errorf("text %d %q: ids with spans differ: %v, want %v", i, text, ids, want)
				}
				if again := tok.EncodeBytes(nil, []byte(text)); !slices.Equal(again, want) {
					t.Errorf("text %d %q: the second time, ids are %v", i, text, again)
				}
				other := texts[(i+1)%len(texts)]
				for j, fact := range []struct{ name, got string }{
					{"ordinary ids", showIDs(tok.EncodeOrdinary(nil, []byte(text)))},
					{"decoded", tok.Decode(want, false)},
					{"decoded without special tokens", tok.Decode(want, true)},
					{"prepared", prepare(tok, text)},
					{"prepared pair", prepare(tok, text, other)},
				} {
					if sum := crc32.ChecksumIEEE([]byte(fact.got)); strconv.Itoa(int(sum)) != string(lines[i][1+j]) {
						if failed[fact.name]++; failed[fact.name] < 3 {
							t.Errorf("text %d %.300q: %s differ: %.900q", i, text, fact.name, fact.got)
						}
					}
				}
			}
			for i, line := range lines[len(texts):] {
				ids := unjson[[]int32](t, line[0])
				if got := tok.Decode(ids, false); strconv.Itoa(int(crc32.ChecksumIEEE([]byte(got)))) != string(line[1]) {
					if failed["random"]++; failed["random"] < 4 {
						t.Errorf("random ids %d: %v %q decode to %q", i, ids, spell(tok, ids), got)
					}
				}
			}
			for name, n := range failed {
				if n >= 4 {
					t.Errorf("%s: %d failures in all", name, n)
				}
			}
		})
	}
}

func spell(tok *Tokenizer, ids []int32) (out []string) {
	for _, id := range ids {
		out = append(out, tok.tokens[id])
	}
	return out
}

// Training gives exactly the same tokenizer as Hugging Face's trainer.
func TestTrainGolden(t *testing.T) {
	want := goldenTokenizer(t, "gpt2")
	var docs [][]byte
	for _, text := range goldenTexts() {
		docs = append(docs, []byte(text))
	}
	got := train(t, docs, TrainOptions{VocabSize: 3000, Specials: []Special{{"<|endoftext|>", []Role{EOS}}}})
	for id := range max(len(got.tokens), len(want.tokens)) {
		if a, b := got.tokens[id], want.tokens[id]; a != b {
			t.Fatalf("token %d is %q, want %q", id, a, b)
		}
	}
	if a, b := got.model.(*bpe), want.model.(*bpe); !slices.Equal(a.into, b.into) || !slices.Equal(a.pairs.keys, b.pairs.keys) {
		t.Error("merges differ")
	}
}

// Normalizers and pre-tokenizers, each alone, on every text; and normalizers on every existing
// character.
func TestParts(t *testing.T) {
	texts := goldenTexts()
	for n, line := range goldenLines(t, "parts.golden.gz") {
		slot := unjson[string](t, line[0])
		kind := unjson[struct{ Type string }](t, line[1]).Type
		t.Run(fmt.Sprintf("%d %s %s", n, slot, kind), func(t *testing.T) {
			t.Parallel()
			if slot == "characters" && testing.Short() {
				t.Skip("a million characters")
			}
			r := &reader{name: "part"}
			config := node{r, slot, line[1]}
			var part func(text string) string
			if slot == "pre_tokenizer" {
				part = splitter(readPreTokenizer(config))
			} else {
				f := readNormalizer(config)
				part = func(text string) string {
					plain := f.normalize(newStretch(text, false)).s
					if slot == "characters" {
						return plain
					}
					if tracked := f.normalize(newStretch(text, true)).s; tracked != plain {
						t.Errorf("%q: without spans %q, with them %q", text, plain, tracked)
					}
					return plain
				}
			}
			if r.err != nil {
				t.Fatal(r.err)
			}
			if slot == "characters" {
				if got, want := everyCharacter(part), unjson[string](t, line[2]); got != want {
					t.Errorf("%s: sum %s, want %s", line[1], got, want)
				}
				return
			}
			for i, want := range unjson[[]uint32](t, line[2]) {
				if leftOut(i) {
					continue
				}
				var out []string
				for _, text := range texts[10*i : min(10*i+10, len(texts))] {
					out = append(out, part(text))
				}
				if crc32.ChecksumIEEE([]byte(strings.Join(out, "\x00"))) != want {
					t.Fatalf("%s: one of texts %d to %d: %q", line[1], 10*i, 10*i+9, out)
				}
			}
		})
	}
}

// splitter shows the words of a text and their spans like the goldens.
func splitter(p preTokenizer) func(string) string {
	return func(text string) string {
		var words []string
		var spans []Span
		if text != "" {
			for _, w := range p.split(nil, newStretch(text, true)) {
				words = append(words, w.s)
				spans = append(spans, w.span(0, len(w.s)))
			}
		}
		return strings.Join(words, "\n") + "\n" + showSpans(spans)
	}
}

// everyCharacter returns a checksum of a function's results for each single character.
func everyCharacter(part func(string) string) string {
	h := sha256.New()
	for c := range rune(unicode.MaxRune + 1) {
		if utf8.ValidRune(c) {
			h.Write([]byte(part(string(c)) + "\n"))
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}
