package moderation

import (
	"compress/gzip"
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/snug-ml/snug/data/token"
	"github.com/snug-ml/snug/engine"
)

// TestPhoBERT: a tokenizer like PhoBERT's, which no tokenizer.json can express, gets from its folder through
// training and the checkpoint into the classifier.
func TestPhoBERT(t *testing.T) {
	folder := t.TempDir()
	for _, name := range []string{"vocab.txt", "bpe.codes"} {
		f, err := os.Open(filepath.Join("..", "..", "data", "token", "testdata", "phobert."+name+".gz"))
		if err != nil {
			t.Fatal(err)
		}
		z, err := gzip.NewReader(f)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := io.ReadAll(z)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), raw, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	tok, err := token.LoadFolder(folder)
	if err != nil {
		t.Fatal(err)
	}
	source := file(t, "train.csv", "text,label\n"+
		"phòng_trọ sạch_sẽ gần chợ,0\nđồ ngu_ngốc lừa_đảo,1\nphòng đẹp giá rẻ,0\nlừa_đảo tránh xa,1\ncho thuê phòng,0\nngu quá,1\n")
	p := prepareRun(t, small("data.source", source, "data.validation", source, "data.duplicates", "keep", "data.tokenizer.path", folder,
		"model.architecture", "roberta", "model.vocab_size", "64001", "model.d_model", "8", "model.d_ff", "8", "data.buckets", "48", "decision.baseline", "false")...)
	dir := p.trained(t, 2)
	k := mustClassifier(t, p.c, dir)
	defer func() { _ = k.Close() }()
	want := append(append([]int32{0}, tok.Encode(nil, "lừa_đảo tránh xa")...), 2)
	e := encodedText(t, k, "lừa_đảo tránh xa")
	if len(e.in.ids) != len(want) {
		t.Fatalf("ids %v, want %v", e.in.ids, want)
	}
	for i, id := range want {
		if e.in.ids[i] != id {
			t.Fatalf("ids %v, want %v", e.in.ids, want)
		}
	}
	r := p.arm(t, engine.CompileOptions{})
	if m := scoresOf(t, p, r, dir); m["eval_loss"] <= 0 {
		t.Errorf("metrics %v", m)
	}
	if _, err := k.Probabilities(context.Background(), []*Encoded{e}); err != nil {
		t.Fatal(err)
	}
}
