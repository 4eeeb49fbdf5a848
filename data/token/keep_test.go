package token

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestLoadOrTrain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tokenizer")
	opt := TrainOptions{VocabSize: 270, Specials: []Special{{"<s>", []Role{BOS}}}}
	text := []byte("what was trained once is loaded, what was trained twice is the same")
	var logged []string
	get := func(docs iter.Seq2[[]byte, error]) (map[string][]byte, func() error) {
		t.Helper()
		logged = nil
		tok, keep, err := LoadOrTrain(context.Background(), dir, docs, opt, func(f string, a ...any) { logged = append(logged, fmt.Sprintf(f, a...)) })
		if err != nil {
			t.Fatal(err)
		}
		files, err := tok.Files()
		if err != nil {
			t.Fatal(err)
		}
		return files, keep
	}
	first, keep := get(texts(text))
	if _, err := os.Stat(dir); err == nil {
		t.Error("a tokenizer was written before it was kept")
	}
	if len(logged) != 1 || !strings.Contains(logged[0], "training a byte-level BPE tokenizer of 270 tokens") {
		t.Errorf("logged %q", logged)
	}
	if err := keep(); err != nil {
		t.Fatal(err)
	}
	unread := func(func([]byte, error) bool) { t.Error("documents were read for a tokenizer that is there") }
	if again, _ := get(unread); !reflect.DeepEqual(again, first) || logged != nil {
		t.Errorf("the tokenizer that was kept is another; logged %q", logged)
	}
	if err := os.WriteFile(filepath.Join(dir, File), []byte("{"), 0o666); err != nil {
		t.Fatal(err)
	}
	again, keep := get(texts(text))
	if !reflect.DeepEqual(again, first) {
		t.Error("made again it is another tokenizer")
	}
	if len(logged) != 2 || !strings.Contains(logged[0], "preparing it again") {
		t.Errorf("of a damaged tokenizer it logged %q", logged)
	}
	if err := keep(); err != nil {
		t.Fatal(err)
	}
	if again, _ := get(unread); !reflect.DeepEqual(again, first) {
		t.Error("what was kept in place of a damaged tokenizer is another")
	}
	lost := errors.New("data: a.txt: it is gone")
	if _, _, err := LoadOrTrain(context.Background(), dir+"2", func(yield func([]byte, error) bool) { yield(nil, lost) }, opt, t.Logf); err != lost {
		t.Errorf("an error of the documents became %v", err)
	}
}
