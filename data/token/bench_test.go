package token

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// english returns a megabyte of plain English, otherwise of Go source.
func english(b *testing.B) string {
	b.Helper()
	shared := cmp.Or(os.Getenv("SNUG_SHARED"), filepath.Join("..", "..", "..", "shared"))
	if text, err := os.ReadFile(filepath.Join(shared, "data", "tinyshakespeare.txt")); err == nil {
		return string(text)
	}
	var s strings.Builder
	for _, doc := range goSource(b, 1<<20) {
		s.Write(doc)
	}
	return s.String()
}

func BenchmarkEncode(b *testing.B) {
	text := english(b)
	trained := train(b, [][]byte{[]byte(text)}, TrainOptions{VocabSize: 8192})
	for _, kind := range append([]string{"trained", "bytes"}, goldenKinds...) {
		b.Run(kind, func(b *testing.B) {
			var tok *Tokenizer
			switch kind {
			case "trained":
				tok = trained
			case "bytes":
				var err error
				if tok, err = Bytes(); err != nil {
					b.Fatal(err)
				}
			default:
				tok = goldenTokenizer(b, kind)
			}
			b.SetBytes(int64(len(text)))
			var ids []int32
			for b.Loop() {
				ids = tok.Encode(ids[:0], text)
			}
			b.ReportMetric(float64(len(text))/float64(len(ids)), "B/token")
		})
	}
}

func BenchmarkTrain(b *testing.B) {
	docs := goSource(b, 10<<20)
	size := 0
	for _, d := range docs {
		size += len(d)
	}
	b.SetBytes(int64(size))
	for b.Loop() {
		train(b, docs, TrainOptions{VocabSize: 8192})
	}
}

func BenchmarkParse(b *testing.B) {
	content := unzip(b, "gpt2.tokenizer.json.gz")
	b.SetBytes(int64(len(content)))
	for b.Loop() {
		if _, err := Parse("gpt2", content); err != nil {
			b.Fatal(err)
		}
	}
}
