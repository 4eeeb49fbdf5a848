package moderation

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/data/token"
)

func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

func mustRead(t *testing.T, pairs ...string) *splits {
	t.Helper()
	s, err := read(context.Background(), settings(t, pairs...), t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestFormats reads the same texts in the usual layouts.
func TestFormats(t *testing.T) {
	valid := file(t, "valid.csv", "text,label\nv1,0\nv2,1\n")
	for name, pairs := range map[string][]string{
		"csv, quoted over lines": {"data.source", file(t, "a.csv", "id,text,label\n1,\"one\ntwo, \"\"three\"\"\",clean\n2,bad,HATE\n")},
		"tsv without a header": {"data.source", file(t, "a.tsv", "one\ntwo"[:3]+" \"quote\t0\nbad\t1\n"), "data.no_header", "true", "data.text_field", "1", "data.label_field", "2",
			"data.validation", file(t, "v.tsv", "v1\t0\nv2\t1\n")},
		"jsonl, truth values": {"data.source", file(t, "a.jsonl", `{"text": "one", "bad": false}`+"\n"+`{"text": "bad", "bad": true}`+"\n"), "data.label_field", "bad",
			"data.validation", file(t, "v.jsonl", `{"text": "v1", "bad": false}`+"\n"+`{"text": "v2", "bad": true}`+"\n")},
		"numbers as labels":         {"data.source", file(t, "n.jsonl", `{"text": "one", "label": 0}`+"\n"+`{"text": "bad", "label": 1}`+"\n")},
		"the list of a json object": {"data.source", file(t, "a.json", `{"version": 1, "rows": [{"text": "one", "label": 0}, {"text": "bad", "label": 1}]}`), "data.array_key", "rows"},
		"own words":                 {"data.source", file(t, "o.csv", "text,label\none,ok\nbad,nope\n"), "data.positive_labels", "nope,1", "data.negative_labels", "ok,0"},
	} {
		t.Run(name, func(t *testing.T) {
			s := mustRead(t, dedupe(append([]string{"data.validation", valid}, pairs...))...)
			if len(s.train) != 2 || len(s.valid) != 2 || len(s.test) != 0 {
				t.Fatalf("%d, %d and %d texts", len(s.train), len(s.valid), len(s.test))
			}
			if s.train[0].positive || !s.train[1].positive || s.train[1].text != "bad" {
				t.Errorf("read %+v", s.train)
			}
		})
	}
	if s := mustRead(t, "data.format", "gotree", "data.validation", valid); len(s.valid) != 2 {
		t.Errorf("next to the Go tree, %d validation texts", len(s.valid))
	}
	s := mustRead(t, "data.source", file(t, "a.csv", "text,label\n\"one\ntwo, \"\"three\"\"\",0\nbad,1\n"), "data.validation", valid)
	if s.train[0].text != "one\ntwo, \"three\"" {
		t.Errorf("a quoted text came as %q", s.train[0].text)
	}
}

// TestReadErrors: data that cannot be learned from is rejected with its position.
func TestReadErrors(t *testing.T) {
	valid := file(t, "valid.csv", "text,label\nv1,0\nv2,1\n")
	for want, text := range map[string]string{
		`a.csv:3: label "maybe" is not one of`:  "text,label\none,0\ntwo,maybe\n",
		"data.text_field chooses the field":     "comment,label\none,0\n",
		"data.label_field chooses the field":    "text,class\none,0\n",
		"training texts are all of one class":   "text,label\none,0\ntwo,0\n",
		"a.csv:2: 3 fields, want 2":             "text,label\none,two,0\n",
		"training texts are all of one class (": "text,label\none,1\ntwo,spam\n",
	} {
		_, err := read(context.Background(), settings(t, "data.source", file(t, "a.csv", text), "data.validation", valid), t.Logf)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

// TestNamedFilesAreBlamed: what is wrong with files of held-out texts is said of these, with nothing that
// would change only a share of data.source.
func TestNamedFilesAreBlamed(t *testing.T) {
	both, one, none := "text,label\nv1,0\nv2,1\n", "text,label\nv1,0\n", "text,label\n"
	for _, c := range []struct{ source, valid, test, want string }{
		{both, none, both, "data.validation: @valid.csv: the files have no rows: want texts with labels of both classes, or leave the key out to hold out a share of data.source"},
		{both, both, none, "data.test: @test.csv: the files have no rows"},
		{both, one, both, "the validation texts are all of one class (0 flagged of 1): both are needed; check data.positive_labels and data.label_field, or add texts of the other class to data.validation"},
		{both, both, one, "the test texts are all of one class (0 flagged of 1): both are needed; check data.positive_labels and data.label_field, or add texts of the other class to data.test"},
		{one, both, both, "the training texts are all of one class (0 flagged of 1): both are needed; check data.positive_labels and data.label_field, or add texts of the other class to data.source"},
		{one, both, "", "the training texts are all of one class (0 flagged of 1): both are needed; check data.positive_labels and data.label_field, or choose another data.shuffle_seed"},
	} {
		dir := t.TempDir()
		pairs := []string{"data.duplicates", "keep", "data.shuffle_seed", "2"}
		for key, text := range map[string]string{"source": c.source, "validation": c.valid, "test": c.test} {
			if text == "" {
				pairs = append(pairs, "data.test_fraction", "0.01")
				continue
			}
			path := filepath.Join(dir, strings.TrimSuffix(key, "ation")+".csv")
			if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
				t.Fatal(err)
			}
			pairs = append(pairs, "data."+key, path)
		}
		_, err := read(context.Background(), settings(t, pairs...), t.Logf)
		if want := strings.ReplaceAll(c.want, "@", dir+"/"); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

// TestRecordKeys: the keys of the section "data" for records work as in other systems.
func TestRecordKeys(t *testing.T) {
	torn := file(t, "torn.csv", "text,label\nf\xffne,0\nbad\xfe\xff,1\nv1,0\nv2,1\n")
	valid := file(t, "valid.csv", "text,label\nv3,0\nv4,1\n")
	refused := func(want string, pairs ...string) {
		t.Helper()
		_, err := read(context.Background(), settings(t, append(pairs, "data.validation", valid)...), t.Logf)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error %v, want one with %q", pairs, err, want)
		}
	}
	refused("set data.replace_invalid", "data.source", torn)
	refused("data.max_record", "data.source", file(t, "long.jsonl", `{"label": 0, "text": "`+strings.Repeat("x", 4096)+"\"}\n"), "data.max_record", "1KiB")
	var told []string
	s, err := read(context.Background(), settings(t, "data.source", torn, "data.validation", valid, "data.replace_invalid", "true"),
		func(format string, args ...any) { told = append(told, fmt.Sprintf(format, args...)) })
	if err != nil {
		t.Fatal(err)
	}
	if got := s.train[0].text + " " + s.train[1].text; got != "f\uFFFDne bad\uFFFD\uFFFD" {
		t.Errorf("read %q", got)
	}
	if all := strings.Join(told, "\n"); !strings.Contains(all, "(data.replace_invalid): 3 bytes") {
		t.Errorf("told: %s", all)
	}
}

// TestSplitByFolder: with data.split_by folder, the files of a folder stay on one side.
func TestSplitByFolder(t *testing.T) {
	root := t.TempDir()
	for d := range 40 {
		dir := filepath.Join(root, fmt.Sprint(d))
		if err := os.Mkdir(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf("text,label\ngood %d,0\nbad %d,1\n", d, d)
		if err := os.WriteFile(filepath.Join(dir, "a.csv"), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	s := mustRead(t, "data.source", filepath.Join(root, "*", "*.csv"), "data.held_out_fraction", "0.4", "data.split_by", "folder")
	trained := map[string]bool{}
	for _, x := range s.train {
		trained[x.folder] = true
	}
	if len(s.train) == 0 || len(s.valid) == 0 {
		t.Fatalf("%d and %d texts", len(s.train), len(s.valid))
	}
	for _, x := range s.valid {
		if trained[x.folder] {
			t.Errorf("%s is held out and its folder is trained on", x.where)
		}
	}
}

// TestCut: splits that are cut depend on the texts and the seed, keep repeats together and have about the
// configured size.
func TestCut(t *testing.T) {
	source := comments(t, "all.csv", 2000, 3)
	s := mustRead(t, "data.source", source, "data.held_out_fraction", "0.2", "data.test_fraction", "0.1")
	for name, x := range map[string]struct {
		n    int
		want float64
	}{"validation": {len(s.valid), 0.2}, "test": {len(s.test), 0.1}, "train": {len(s.train), 0.7}} {
		if got := float64(x.n) / 2000; math.Abs(got-x.want) > 0.03 {
			t.Errorf("the %s split has a share of %.3f, want about %.1f", name, got, x.want)
		}
	}
	again := mustRead(t, "data.source", source, "data.held_out_fraction", "0.2", "data.test_fraction", "0.1")
	if !slices.Equal(s.valid, again.valid) || !slices.Equal(s.test, again.test) {
		t.Error("the same seed cut other splits")
	}
	other := mustRead(t, "data.source", source, "data.held_out_fraction", "0.2", "data.test_fraction", "0.1", "training.seed", "7")
	if slices.Equal(s.valid, other.valid) {
		t.Error("another seed cut the same splits")
	}
	for pair, n := range s.duplicates.Across {
		if n > 0 {
			t.Errorf("%d texts of %s, although repeats stay together", n, pair)
		}
	}
}

// TestDuplicates: texts in two splits are found whatever their case and spaces, reported, and not trained on.
func TestDuplicates(t *testing.T) {
	train := file(t, "train.csv", "text,label\nHello  World,0\nbuy now,1\nbuy now,1\nfine,0\nunsure,0\nunsure,1\nlast,1\n")
	valid := file(t, "valid.csv", "text,label\nhello world,0\nnew,1\n")
	test := file(t, "test.csv", "text,label\nBUY NOW,1\nnew,1\nold,0\n")
	pairs := []string{"data.source", train, "data.validation", valid, "data.test", test}
	s := mustRead(t, pairs...)
	d := s.duplicates
	if d.Within["train"] != 2 || d.Across["train in validation"] != 1 || d.Across["train in test"] != 2 || d.Across["validation in test"] != 1 || d.Conflicts != 1 || d.Dropped != 3 {
		t.Errorf("found %+v", d)
	}
	if len(s.train) != 4 {
		t.Errorf("%d training texts are left, want 4", len(s.train))
	}
	if len(d.Examples) != 2 || d.Examples[0].Text != "hello world" || !strings.HasSuffix(d.Examples[0].Where[0], "train.csv:2") {
		t.Errorf("examples %+v", d.Examples)
	}
	kept := mustRead(t, append(pairs, "data.duplicates", "keep")...)
	if len(kept.train) != 7 || kept.duplicates.Dropped != 0 {
		t.Errorf("with data.duplicates keep %d training texts are left, %d were dropped", len(kept.train), kept.duplicates.Dropped)
	}
}

// TestClassWeights: both classes have the same total weight, and the mean weight is 1.
func TestClassWeights(t *testing.T) {
	samples := make([]sample, 10)
	samples[3].positive, samples[5].positive = true, true
	w := classWeights(settings(t, "data.source", "x"), samples)
	if w[0]*8 != w[1]*2 || w[0]*8+w[1]*2 != 10 {
		t.Errorf("weights %v", w)
	}
	if w := classWeights(settings(t, "data.source", "x", "decision.class_weights", "none"), samples); w != [labels]float64{1, 1} {
		t.Errorf("without weights they are %v", w)
	}
	// These are the counts of the guide.
	guide := make([]sample, 24048)
	for i := range 4162 {
		guide[i].positive = true
	}
	if w := classWeights(settings(t, "data.source", "x"), guide); math.Abs(w[0]-0.605) > 5e-4 || math.Abs(w[1]-2.889) > 5e-4 {
		t.Errorf("weights of the guide's data are %v, want 0.605 and 2.889", w)
	}
}

// TestDocComments: the doc comments of the Go tree are a task with both classes.
func TestDocComments(t *testing.T) {
	s, err := docComments(context.Background(), t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	share := float64(count(s)) / float64(len(s))
	if len(s) < 5000 || share < 0.1 || share > 0.35 {
		t.Errorf("%d comments, %.0f %% flagged", len(s), 100*share)
	}
	if !flaggedPackage("net/http/internal") || !flaggedPackage("crypto") || flaggedPackage("internal/network") || flaggedPackage("os") {
		t.Error("the wrong packages are flagged")
	}
}

// TestEncode: a long text is cut but keeps its markers, and markers written in a text are treated as text.
func TestEncode(t *testing.T) {
	tok, err := token.Bytes(ownMarkers...)
	if err != nil {
		t.Fatal(err)
	}
	e, err := newTextEncoder(tok, settings(t, "data.source", "x", "data.seq_len", "6", "model.pad_id", "257", "model.vocab_size", "512", "data.tokenizer.vocab_size", "512"))
	if err != nil {
		t.Fatal(err)
	}
	ids, cut := e.ids(nil, "abcd")
	if cut || len(ids) != 6 || ids[0] != e.first || ids[5] != e.last {
		t.Errorf("ids %v, cut %v", ids, cut)
	}
	ids, cut = e.ids(nil, "abcde")
	if !cut || len(ids) != 6 || ids[5] != e.last {
		t.Errorf("ids of a long text %v, cut %v", ids, cut)
	}
	if ids, _ = e.ids(nil, "</s>"); slices.Contains(ids[1:5], e.last) {
		t.Errorf("a marker in a text became one: %v", ids)
	}
	for want, specials := range map[string][]token.Special{"no token for a whole text": {{Content: "</s>"}, {Content: "<pad>"}}, "ends a text": {{Content: "<s>"}, {Content: "<pad>"}}} {
		tok, err := token.Bytes(specials...)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := newTextEncoder(tok, settings(t, "data.source", "x")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
	if _, err := newTextEncoder(tok, settings(t, "data.source", "x", "model.pad_id", "2")); err == nil || !strings.Contains(err.Error(), "model.pad_id") {
		t.Errorf("another padding was taken: %v", err)
	}
}

// TestWideInput: the wide table gets each word and pair once, with padding.
func TestWideInput(t *testing.T) {
	if got := slices.Collect(grams("No, no NO")); !slices.Equal(got, []string{"no", ",", "no ,", "no", ", no", "no", "no no"}) {
		t.Errorf("words and pairs %q", got)
	}
	tok, err := token.Bytes(ownMarkers...)
	if err != nil {
		t.Fatal(err)
	}
	c := settings(t, "data.source", "x", "model.wide_rows", "1000", "model.pad_id", "257", "model.vocab_size", "512", "data.tokenizer.vocab_size", "512")
	e, err := newTextEncoder(tok, c)
	if err != nil {
		t.Fatal(err)
	}
	var in modelInput
	for _, text := range []string{"a much longer text that came before", "No, no NO"} { // because buffers are reused
		in.set(e, config.Of[Model](c), text)
	}
	n := 0.0
	for i, p := range in.present {
		n += float64(p) * float64(p)
		if p == 0 && in.grams[i] != 0 {
			t.Errorf("filling names row %d", in.grams[i])
		}
	}
	if len(in.grams) != gramsPerToken*len(in.ids) || math.Abs(n-1) > 1e-6 || in.present[4] == 0 || in.present[5] != 0 {
		t.Errorf("grams %v, present %v", in.grams, in.present)
	}
}
