package data

import (
	"os"
	"path/filepath"
	"testing"
)

// Real files, if a developer has them: counts as stated in their README.
func TestSharedData(t *testing.T) {
	root := os.Getenv("SNUG_SHARED")
	if root == "" {
		root = filepath.Join("..", "..", "shared")
	}
	root = filepath.Join(root, "data")
	if _, err := os.Stat(root); err != nil {
		t.Skip("no shared data")
	}
	for _, test := range []struct {
		pattern string
		opt     Options
		want    int
	}{
		{"sst2/train.tsv", Options{NoHeader: true, TextField: "1"}, 6920},
		{"sst2/dev.tsv", Options{NoHeader: true, TextField: "1"}, 872},
		{"mbpp/*.json", Options{TextField: "prompt"}, 426},
		{"squad/*.json", Options{ArrayKey: "data", TextField: "title"}, 5},
		{"multi30k/train.*.gz", Options{Split: SplitLine}, 2 * 29000},
		{"multi30k/val.*.gz", Options{Split: SplitLine}, 2 * 1014},
		{"tinyshakespeare.txt", Options{}, 1},
	} {
		docs, err := documents(t, test.opt, filepath.Join(root, filepath.FromSlash(test.pattern)))
		if err != nil {
			t.Errorf("%s: %v", test.pattern, err)
		} else if len(docs) != test.want {
			t.Errorf("%s: %d documents, want %d", test.pattern, len(docs), test.want)
		}
	}
	for _, name := range []string{"train.csv", "valid.csv"} {
		recs, err := records(t, Options{}, filepath.Join(root, "sms", name))
		if err != nil {
			t.Fatal(err)
		}
		positive := int64(0)
		for _, r := range recs {
			label, err := r.Int("label")
			if err != nil {
				t.Fatal(err)
			}
			positive += label
		}
		if share := float64(positive) / float64(len(recs)); share < 0.12 || share > 0.15 {
			t.Errorf("sms/%s: %.3f of %d are positive, want about 0.13", name, share, len(recs))
		}
	}
}
