package token

import (
	"bytes"
	"context"
	"io/fs"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// goSource returns the files of the Go installation that runs the test, up to limit bytes in all.
func goSource(t testing.TB, most int) [][]byte {
	t.Helper()
	var docs [][]byte
	size := 0
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Skipf("no Go installation to read: %v", err)
	}
	err = filepath.WalkDir(filepath.Join(strings.TrimSpace(string(root)), "src"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		if size >= most {
			return fs.SkipAll
		}
		text, err := os.ReadFile(path)
		size += len(text)
		docs = append(docs, text)
		return err
	})
	if err != nil || size == 0 {
		t.Skipf("no Go source to read: %v", err)
	}
	return docs
}

func train(t testing.TB, docs [][]byte, opt TrainOptions) *Tokenizer {
	t.Helper()
	tok, err := TrainBPE(context.Background(), texts(docs...), opt)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// texts yields documents without an error.
func texts(docs ...[]byte) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for _, d := range docs {
			if !yield(d, nil) {
				return
			}
		}
	}
}

func TestTrainBPE(t *testing.T) {
	docs := goSource(t, 2<<20)
	opt := TrainOptions{
		VocabSize: 1000,
		Specials:  []Special{{"<|endoftext|>", []Role{EOS, BOS}}, {"<|pad|>", []Role{PAD}}},
		Workers:   1,
	}
	one := train(t, docs, opt)
	if got := one.VocabSize(); got != opt.VocabSize {
		t.Fatalf("vocabulary size %d, want %d", got, opt.VocabSize)
	}
	opt.Workers = 5
	five := train(t, docs, opt)
	if !slices.Equal(one.tokens, five.tokens) {
		t.Error("the vocabulary depends on the number of workers")
	}
	for role, want := range map[Role]int32{EOS: 0, BOS: 0, PAD: 1} {
		if id, ok := one.Special(role); !ok || id != want {
			t.Errorf("%s is %d, %v; want %d", role, id, ok, want)
		}
	}
	for _, doc := range docs[:20] {
		ids := one.EncodeBytes(nil, doc)
		if back := one.DecodeBytes(nil, ids); !bytes.Equal(back, doc) {
			t.Fatal("decoded text differs")
		}
		if len(ids)*3 > len(doc)*2 {
			t.Errorf("%d ids for %d bytes: nothing learned", len(ids), len(doc))
		}
	}
}

func TestTrainLarge(t *testing.T) {
	bytes, vocab := 10<<20, 8192
	if testing.Short() {
		bytes, vocab = 1<<20, 2048
	}
	docs := goSource(t, bytes)
	start := time.Now()
	if got := train(t, docs, TrainOptions{VocabSize: vocab}).VocabSize(); got != vocab {
		t.Errorf("vocabulary size %d, want %d", got, vocab)
	}
	t.Logf("%v for %d bytes", time.Since(start), bytes)
}

func TestSaveLoad(t *testing.T) {
	docs := goSource(t, 1<<20)
	made := train(t, docs, TrainOptions{VocabSize: 600, Specials: []Special{{"<eod>", []Role{EOS}}}})
	dir := t.TempDir()
	if err := made.Save(dir); err != nil {
		t.Fatal(err)
	}
	read, err := LoadFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	if id, ok := read.Special(EOS); !ok || id != 0 {
		t.Errorf("eos is %d, %v after loading", id, ok)
	}
	for _, doc := range docs {
		if !slices.Equal(made.EncodeBytes(nil, doc), read.EncodeBytes(nil, doc)) {
			t.Fatal("ids differ after loading")
		}
	}
}

// A special token written in text stays text for EncodeOrdinary, and training makes no merge that
// contradicts this.
func TestEncodeOrdinary(t *testing.T) {
	doc := []byte(strings.Repeat("a<eod>b", 100))
	tok := train(t, [][]byte{doc}, TrainOptions{VocabSize: 300, Specials: []Special{{"<eod>", []Role{EOS}}}})
	if ids := tok.EncodeBytes(nil, doc); !slices.Contains(ids, 0) {
		t.Errorf("the special token was not found: %v", ids)
	}
	ids := tok.EncodeOrdinary(nil, doc)
	if slices.Contains(ids, 0) {
		t.Errorf("the special token was found: %v", ids)
	}
	if back := tok.Decode(ids, true); back != string(doc) {
		t.Errorf("decoded %q", back)
	}
}

func TestBytes(t *testing.T) {
	tok, err := Bytes(Special{"<eos>", []Role{EOS}})
	if err != nil {
		t.Fatal(err)
	}
	if tok.VocabSize() != 257 {
		t.Errorf("vocabulary size %d, want 257", tok.VocabSize())
	}
	var all []byte
	for b := range 256 {
		all = append(all, byte(255-b))
	}
	ids := tok.EncodeBytes(nil, all)
	for i, id := range ids {
		if int(id) != 255-i {
			t.Fatalf("byte %d has id %d", 255-i, id)
		}
	}
	if back := tok.DecodeBytes(nil, ids); !bytes.Equal(back, all) {
		t.Errorf("decoded %q", back)
	}
}

func TestTrainRefuses(t *testing.T) {
	docs := texts([]byte("some text"))
	for want, opt := range map[string]TrainOptions{
		"need at least 257":        {VocabSize: 256, Specials: []Special{{"<e>", nil}}},
		"is given twice":           {VocabSize: 300, Specials: []Special{{"<e>", nil}, {"<e>", nil}}},
		"both have role eos":       {VocabSize: 300, Specials: []Special{{"<e>", []Role{EOS}}, {"<f>", []Role{EOS}}}},
		"expected one of":          {VocabSize: 300, Specials: []Special{{"<e>", []Role{"end"}}}},
		"spells byte 0x61":         {VocabSize: 300, Specials: []Special{{"a", nil}}},
		"must be positive":         {VocabSize: 300, Workers: -1},
		"at most 16777216":         {VocabSize: 1 << 25},
		"a special token is empty": {VocabSize: 300, Specials: []Special{{"", nil}}},
	} {
		if _, err := TrainBPE(context.Background(), docs, opt); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
	if _, err := TrainBPE(context.Background(), texts([]byte{}), TrainOptions{VocabSize: 300}); err == nil {
		t.Error("training on nothing must fail")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := TrainBPE(ctx, docs, TrainOptions{VocabSize: 300}); err == nil {
		t.Error("a canceled training must fail")
	}
}
