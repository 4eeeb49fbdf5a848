package data

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
)

func TestGlob(t *testing.T) {
	dir := writeFiles(t, map[string]string{
		"a.txt": "", "b.md": "", "sub/c.txt": "", "sub/deep/d.txt": "", "sub/deep/e[1].txt": "",
		".hidden/x.txt": "", "sub/.y.txt": "", "other/f.txt": "",
	})
	for _, test := range []struct {
		pattern string
		want    []string
	}{
		{"*.txt", []string{"a.txt"}},
		{"**/*.txt", []string{"a.txt", "other/f.txt", "sub/c.txt", "sub/deep/d.txt", "sub/deep/e[1].txt"}},
		{"sub/**", []string{"sub/c.txt", "sub/deep/d.txt", "sub/deep/e[1].txt"}},
		{"s?b/*/d.txt", []string{"sub/deep/d.txt"}},
		{"**/deep/*", []string{"sub/deep/d.txt", "sub/deep/e[1].txt"}},
		{"[ab].*", []string{"a.txt", "b.md"}},
		{"sub", []string{"sub/c.txt", "sub/deep/d.txt", "sub/deep/e[1].txt"}},
		{"sub/deep/e[1].txt", []string{"sub/deep/e[1].txt"}},
		{".hidden/*", []string{".hidden/x.txt"}},
		{"**/.*", []string{"sub/.y.txt"}},
	} {
		got, err := Glob(filepath.Join(dir, test.pattern))
		if err != nil {
			t.Errorf("%s: %v", test.pattern, err)
			continue
		}
		for i, g := range got {
			rel, err := filepath.Rel(dir, g)
			if err != nil {
				t.Fatal(err)
			}
			got[i] = filepath.ToSlash(rel)
		}
		if d := cmp.Diff(test.want, got); d != "" {
			t.Errorf("%s: %s", test.pattern, d)
		}
	}
	both, err := Glob(filepath.Join(dir, "*.txt"), filepath.Join(dir, "a.*"))
	if err != nil || len(both) != 1 {
		t.Errorf("overlapping patterns: %v, %v; want a.txt once", both, err)
	}
	_, err = Glob(filepath.Join(dir, "*.none"))
	wantError(t, err, "no file matches", "*.none")
	_, err = Glob(filepath.Join(dir, "missing.txt"))
	wantError(t, err, "missing.txt", "no such file")
	_, err = Glob(filepath.Join(dir, "a**/x"))
	wantError(t, err, "stand alone")
	_, err = Glob(filepath.Join(dir, "[a"))
	wantError(t, err, "[a")
}

func documents(t testing.TB, opt Options, patterns ...string) ([]Document, error) {
	t.Helper()
	f, err := OpenFiles(patterns, opt)
	if err != nil {
		t.Fatal(err)
	}
	return collect(f.Documents())
}

func texts(docs []Document) []string {
	var s []string
	for _, d := range docs {
		s = append(s, string(d.Text))
	}
	return s
}

func TestTextSplits(t *testing.T) {
	const body = "one\ntwo\n\n\nthree\r\nfour\n"
	dir := writeFiles(t, map[string]string{"a.txt": body, "b.txt": "last"})
	for _, test := range []struct {
		opt  Options
		want []string
	}{
		{Options{}, []string{body, "last"}},
		{Options{Split: SplitLine}, []string{"one", "two", "three", "four", "last"}},
		{Options{Split: SplitParagraph}, []string{"one\ntwo", "three\r\nfour", "last"}},
		{Options{Split: SplitChunk, ChunkBytes: 6}, []string{"one\ntwo\n", "\n\nthree\r\n", "four\n", "last"}},
	} {
		docs, err := documents(t, test.opt, dir)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(test.want, texts(docs)); d != "" {
			t.Errorf("split %q: %s", test.opt.Split, d)
		}
	}
	docs, err := documents(t, Options{Split: SplitLine}, dir)
	if err != nil {
		t.Fatal(err)
	}
	if id := docs[2].ID; !strings.HasSuffix(id, "a.txt:5") {
		t.Errorf("third line document is %q, want it at a.txt:5", id)
	}
}

func TestTextLimits(t *testing.T) {
	dir := writeFiles(t, map[string]string{"a.txt": strings.Repeat("x", 200_000) + "\ny\n"})
	for _, split := range []string{SplitFile, SplitLine, SplitParagraph, SplitChunk} {
		_, err := documents(t, Options{Split: split, MaxRecord: 100_000}, dir)
		wantError(t, err, "a.txt", "100000 bytes", "data.max_record")
	}
}

func TestInvalidUTF8(t *testing.T) {
	dir := writeFiles(t, map[string]string{"a.txt": "fine\nbad \xff\xfe here\n"})
	_, err := documents(t, Options{}, dir)
	wantError(t, err, "a.txt", "byte 9", "line 2", "0xff", "2 invalid bytes", "data.replace_invalid")
	docs, err := documents(t, Options{ReplaceInvalid: true}, dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(docs[0].Text); got != "fine\nbad \uFFFD\uFFFD here\n" || docs[0].Repaired != 2 {
		t.Errorf("repaired %q, count %d", got, docs[0].Repaired)
	}
	for _, mark := range []string{"\xff\xfea\x00", "\xfe\xff\x00a"} {
		dir := writeFiles(t, map[string]string{"a.txt": mark})
		_, err := documents(t, Options{}, dir)
		wantError(t, err, "UTF-16", "iconv")
	}
}

func TestCompressedInput(t *testing.T) {
	const body = "hello\nworld\n"
	dir := writeFiles(t, map[string]string{
		"plain.txt":     "\ufeff" + body,
		"named.txt.gz":  gzipped(t, body),
		"unnamed.txt":   gzipped(t, "hello\n") + gzipped(t, "world\n"), // members join
		"named.txt.zst": zstded(t, body),
		"other.dat":     zstded(t, "hello\n") + zstded(t, "world\n"),
	})
	docs, err := documents(t, Options{}, dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(docs) != 5 {
		t.Fatalf("%d documents, want 5", len(docs))
	}
	for _, d := range docs {
		if string(d.Text) != body {
			t.Errorf("%s: %q", d.ID, d.Text)
		}
	}
	for name, bytes := range map[string]string{
		"cut.gz":  gzipped(t, strings.Repeat(body, 100))[:30],
		"cut.zst": zstded(t, strings.Repeat(body, 100))[:20],
		"sum.gz":  strings.Replace(gzipped(t, body), "\x0c\x00\x00\x00", "\x0d\x00\x00\x00", 1),
	} {
		dir := writeFiles(t, map[string]string{name: bytes})
		if _, err := documents(t, Options{}, dir); err == nil {
			t.Errorf("%s: damaged input was read without an error", name)
		} else if !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error does not name the file: %v", name, err)
		}
	}
}

// A frame may claim a window of gigabytes; the claim is refused, not allocated.
func TestZstdWindowBound(t *testing.T) {
	frame := []byte(zstded(t, strings.Repeat("a", 1000), zstd.WithSingleSegment(false), zstd.WithWindowSize(1<<20)))
	frame[5] = 31 << 3 // window descriptor: exponent 31, 2 TiB
	dir := writeFiles(t, map[string]string{"a.zst": string(frame)})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := documents(t, Options{}, dir)
	runtime.ReadMemStats(&after)
	wantError(t, err, "a.zst")
	if n := after.TotalAlloc - before.TotalAlloc; n > 64<<20 {
		t.Errorf("%d bytes allocated for a hostile frame", n)
	}
}

func TestJSONL(t *testing.T) {
	dir := writeFiles(t, map[string]string{"a.jsonl": `{"text":"one","thread":7,"n":{"en":"eins"}}

{"text":"two\n","thread":8,"n":{"en":"zwei"}}
`})
	docs, err := documents(t, Options{GroupField: "thread"}, dir)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"one", "two\n"}, texts(docs)); d != "" {
		t.Error(d)
	}
	if docs[1].Group != "8" || !strings.HasSuffix(docs[1].ID, "a.jsonl:3") {
		t.Errorf("group %q, id %q", docs[1].Group, docs[1].ID)
	}
	docs, err = documents(t, Options{TextField: "n.en"}, dir)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"eins", "zwei"}, texts(docs)); d != "" {
		t.Error(d)
	}
	_, err = documents(t, Options{TextField: "body"}, dir)
	wantError(t, err, "a.jsonl:1", `no field "body"`, "n, text, thread", "data.text_field")
}

func TestJSONLErrors(t *testing.T) {
	for body, want := range map[string][]string{
		"{\"text\":\"a\"}\n{\"text\":":             {"a.jsonl:2", "unexpected end"},
		"[1,2]\n":                                  {"a.jsonl:1", "want an object, found"},
		"null\n":                                   {"a.jsonl:1", "found null"},
		"{\"text\":null}\n":                        {"a.jsonl:1", `"text"`, "want text, found null"},
		"{\"text\":[1]}\n":                         {"a.jsonl:1", "want text, found a list"},
		"{\"text\":{\"a\":1}}\n":                   {"a.jsonl:1", "want text, found an object"},
		"{\"text\":\"\xff\"}\n":                    {"a.jsonl:1", "invalid UTF-8"},
		"{\"text\":\"\\ud800x\"}\n":                {"a.jsonl:1", "surrogate"},
		"\n\n{\"text\":1} x\n":                     {"a.jsonl:3", "after top-level value"},
		"{\"text\":\"" + strings.Repeat("x", 3000): {"a.jsonl:1", "longer than 2000 bytes"},
	} {
		dir := writeFiles(t, map[string]string{"a.jsonl": body})
		docs, err := documents(t, Options{MaxRecord: 2000}, dir)
		if err == nil {
			t.Errorf("%q read as %q", body, texts(docs))
			continue
		}
		wantError(t, err, want...)
	}
	dir := writeFiles(t, map[string]string{"a.jsonl": "{\"text\":\"\uFFFD and \\ufffd\"}\n"})
	docs, err := documents(t, Options{}, dir)
	if err != nil || string(docs[0].Text) != "\uFFFD and \uFFFD" {
		t.Errorf("a replacement character of the text's own: %v %q", err, texts(docs))
	}
}

func TestRecordAccessors(t *testing.T) {
	dir := writeFiles(t, map[string]string{"a.jsonl": `{"big":9007199254740993,"x":1.5,"s":" 12 ","b":true,"word":"twelve"}`})
	f, err := OpenFiles([]string{dir}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	recs, err := collect(f.Records())
	if err != nil {
		t.Fatal(err)
	}
	r := recs[0]
	if n, err := r.Int("big"); err != nil || n != 9007199254740993 {
		t.Errorf("big: %d, %v", n, err)
	}
	if n, err := r.Int("s"); err != nil || n != 12 {
		t.Errorf("s: %d, %v", n, err)
	}
	if x, err := r.Float("x"); err != nil || x != 1.5 {
		t.Errorf("x: %v, %v", x, err)
	}
	_, err = r.Int("x")
	wantError(t, err, "a.jsonl:1", `"x"`, "want a whole number, found a number (1.5)")
	_, err = r.Int("word")
	wantError(t, err, `want a whole number, found a text ("twelve")`)
	_, err = r.Text("b")
	wantError(t, err, "want text, found true or false (true)")
}

func TestOptionsChecked(t *testing.T) {
	for want, opt := range map[string]Options{
		"format":      {Format: "xml"},
		"split":       {Split: "word"},
		"quotes":      {Quotes: "single"},
		"chunk_bytes": {ChunkBytes: -1},
		"max_record":  {MaxRecord: -1},
		"overlap":     {Overlap: -1},
	} {
		_, err := OpenFiles([]string{t.TempDir()}, opt)
		wantError(t, err, want)
	}
}

func TestFingerprint(t *testing.T) {
	dir := writeFiles(t, map[string]string{"a.txt": "one", "b.txt": "two"})
	print := func(opt Options) string {
		f, err := OpenFiles([]string{dir}, opt)
		if err != nil {
			t.Fatal(err)
		}
		s, err := f.Fingerprint()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	base := print(Options{})
	if base != print(Options{}) {
		t.Error("not stable")
	}
	seen := []string{base, print(Options{Split: SplitLine})}
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(filepath.Join(dir, "a.txt"), later, later); err != nil {
		t.Fatal(err)
	}
	seen = append(seen, print(Options{}))
	if err := os.WriteFile(filepath.Join(dir, "c.txt"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	seen = append(seen, print(Options{}))
	slices.Sort(seen)
	if len(slices.Compact(seen)) != 4 {
		t.Error("options, time or a new file left the fingerprint as it was")
	}
}

func TestGoTree(t *testing.T) {
	dir := writeFiles(t, map[string]string{
		"src/fmt/print.go":           "// Package fmt prints.\npackage fmt\n",
		"src/fmt/print_test.go":      "package fmt\n",
		"src/fmt/table.go":           "// Code generated by x. DO NOT EDIT.\n\npackage fmt\n",
		"src/fmt/gen.go":             "package fmt\n\nconst s = `\n// Code generated by x. DO NOT EDIT.\n`\n",
		"src/fmt/testdata/x.go":      "package x\n",
		"src/vendor/a/a.go":          "package a\n",
		"src/cmd/go/main.go":         "package main\n",
		"src/archive/zip/reader.go":  "package zip\n",
		"src/archive/zip/readme.txt": "no",
	})
	ids := func(opt GoTreeOptions) []string {
		opt.Root = dir
		g, err := OpenGoTree(opt)
		if err != nil {
			t.Fatal(err)
		}
		docs, err := collect(g.Documents())
		if err != nil {
			t.Fatal(err)
		}
		var s []string
		for _, d := range docs {
			s = append(s, fmt.Sprintf("%s in %s", d.ID, d.Group))
		}
		return s
	}
	want := []string{"archive/zip/reader.go in archive/zip/reader.go", "fmt/gen.go in fmt/gen.go", "fmt/print.go in fmt/print.go"}
	if d := cmp.Diff(want, ids(GoTreeOptions{})); d != "" {
		t.Error(d)
	}
	if n := len(ids(GoTreeOptions{Tests: true, Commands: true})); n != 5 {
		t.Errorf("%d documents with tests and commands, want 5", n)
	}
	_, err := OpenGoTree(GoTreeOptions{Root: t.TempDir()})
	wantError(t, err, "no Go source tree", "data.files")
	empty, err := OpenGoTree(GoTreeOptions{Root: writeFiles(t, map[string]string{"src/x.txt": ""})})
	if err != nil {
		t.Fatal(err)
	}
	_, err = collect(empty.Documents())
	wantError(t, err, "no .go file")
}

// The real tree must be readable from end to end: it is the default corpus.
func TestGoTreeInstalled(t *testing.T) {
	g, err := OpenGoTree(GoTreeOptions{})
	if err != nil {
		t.Skip(err)
	}
	packages, bytes, docs := map[string]bool{}, 0, 0
	for doc, err := range g.Documents() {
		if err != nil {
			t.Fatal(err)
		}
		packages[path.Dir(doc.Group)] = true
		bytes += len(doc.Text)
		docs++
	}
	t.Logf("%d documents, %d packages, %.1f MB", docs, len(packages), float64(bytes)/1e6)
	if len(packages) < 100 || bytes < 5e6 {
		t.Errorf("%d packages with %d bytes: less than a standard library", len(packages), bytes)
	}
}

// Moving the data moves no document to the other side of a split.
func TestGroups(t *testing.T) {
	files := map[string]string{"x/a.txt": "a", "x/y/b.txt": "b", "z/c.txt": "c"}
	for _, c := range []struct{ patterns, want []string }{
		{[]string{"."}, []string{"x/a.txt", "x/y/b.txt", "z/c.txt"}},
		{[]string{"x"}, []string{"a.txt", "y/b.txt"}},
		{[]string{"z/c.txt"}, []string{"c.txt"}},
		{[]string{"x/y/*.txt", "z/*.txt"}, []string{"x/y/b.txt", "z/c.txt"}},
	} {
		for range 2 {
			dir := writeFiles(t, files)
			var patterns, groups []string
			for _, p := range c.patterns {
				patterns = append(patterns, filepath.Join(dir, p))
			}
			docs, err := documents(t, Options{}, patterns...)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range docs {
				groups = append(groups, d.Group)
			}
			if d := cmp.Diff(c.want, groups); d != "" {
				t.Errorf("%v: %s", c.patterns, d)
			}
		}
	}
	if got := commonFolder([]string{"/a/b/c", "d/e"}); got != "" {
		t.Errorf("an absolute and a relative path share %q", got)
	}
}

func TestTexts(t *testing.T) {
	dir := writeFiles(t, map[string]string{"a.txt": "one", "b.txt": "two", "c.txt": "\xff"})
	f, err := OpenFiles([]string{dir}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for limit, want := range map[int64]string{3: "one", 4: "onetwo", 6: "onetwo", 0: "onetwo"} {
		var failed error
		var got []byte
		for text, err := range Texts(f, limit) {
			got, failed = append(got, text...), err
		}
		if string(got) != want || (failed != nil) != (limit == 0) {
			t.Errorf("limit %d: %q, %v", limit, got, failed)
		}
	}
}
