package data

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func records(t testing.TB, opt Options, patterns ...string) ([]Record, error) {
	t.Helper()
	f, err := OpenFiles(patterns, opt)
	if err != nil {
		t.Fatal(err)
	}
	return collect(f.Records())
}

// show prints records as "line: name=value ...".
func show(recs []Record) (all []string) {
	for _, r := range recs {
		var b strings.Builder
		fmt.Fprintf(&b, "%d/%d:", r.Row, r.Line)
		for _, name := range r.Fields() {
			v, err := r.Get(name)
			fmt.Fprintf(&b, " %s=%v", name, v)
			if err != nil {
				fmt.Fprintf(&b, "(%v)", err)
			}
		}
		all = append(all, b.String())
	}
	return all
}

func TestCSV(t *testing.T) {
	for _, test := range []struct {
		name, body string
		opt        Options
		want       []string
	}{
		{"a.csv", "text,label\n\"one, \"\"two\"\"\nthree\",1\n\nfour,0\r\n", Options{},
			[]string{"1/2: label=1 text=one, \"two\"\nthree", "2/5: label=0 text=four"}},
		{"a.csv", "\ufeffa;b\n1;2\n", Options{Comma: ';'}, []string{"1/2: a=1 b=2"}},
		{"a.csv", "x,y\nz,\n", Options{NoHeader: true}, []string{"1/1: 1=x 2=y", "2/2: 1=z 2="}},
		{"a.tsv", "say \"hi\tthere\"\t0\n\nlast\tx\t1", Options{NoHeader: true},
			[]string{"1/1: 1=say \"hi 2=there\" 3=0", "2/3: 1=last 2=x 3=1"}},
		{"a.tsv", "a\tb\n\"q\tq\"\t2\n", Options{Quotes: QuotesCSV}, []string{"1/2: a=q\tq b=2"}},
		{"a.csv.gz", gzipped(t, "a\n1\n"), Options{}, []string{"1/2: a=1"}},
		{"a.dat", "a|b\n1|2\n", Options{Format: FormatCSV, Comma: '|'}, []string{"1/2: a=1 b=2"}},
	} {
		recs, err := records(t, test.opt, writeFiles(t, map[string]string{test.name: test.body}))
		if err != nil {
			t.Errorf("%q: %v", test.body, err)
			continue
		}
		if d := cmp.Diff(test.want, show(recs)); d != "" {
			t.Errorf("%q: %s", test.body, d)
		}
	}
	docs, err := documents(t, Options{TextField: "text", GroupField: "label"},
		writeFiles(t, map[string]string{"a.csv": "text,label\n\"one\ntwo\",7\n"}))
	if err != nil || string(docs[0].Text) != "one\ntwo" || docs[0].Group != "7" || !strings.HasSuffix(docs[0].ID, "a.csv:2") {
		t.Errorf("%+v, %v", docs, err)
	}
}

func TestCSVErrors(t *testing.T) {
	for _, test := range []struct {
		name, body string
		opt        Options
		want       []string
	}{
		{"a.csv", "", Options{}, []string{"a.csv: no rows"}},
		{"a.csv", "text,b\n1,2\n3\n", Options{}, []string{"a.csv:3", "1 field, want 2", "is the separator right"}},
		{"a.csv", "a,a\nx,y\n", Options{}, []string{"a.csv:1", `"a" twice`}},
		{"a.csv", "text\n\"x\" y\n", Options{}, []string{"a.csv:2", "column 3"}},
		{"a.csv", "text;label\nfine;\"x\"\n", Options{}, []string{"a.csv:2: column 6 of the row from line 2: bare", "is the separator right"}},
		{"a.csv", "text;label\n\"x\";1\n", Options{}, []string{"a.csv:2", "in quoted-field: is the separator right"}},
		{"a.csv", "text\n\"open\nline\n", Options{}, []string{"a.csv:3", "row from line 2", "quote"}},
		{"a.csv", "text\nfine\n\"open" + strings.Repeat("x\n", 3000), Options{MaxRecord: 2000}, []string{"a.csv:3", "longer than 2000 bytes", "data.max_record"}},
		{"a.tsv", "a\n" + strings.Repeat("x", 3000), Options{MaxRecord: 2000}, []string{"a.tsv:2", "longer than 2000 bytes"}},
		{"a.csv", "text\n\xff\n", Options{}, []string{"a.csv:2", "invalid UTF-8"}},
		{"a.csv", "a\nb\n", Options{Comma: '"'}, []string{"cannot separate"}},
		{"a.csv", "body\nb\n", Options{}, []string{"a.csv:2", `no field "text"; it has body`}},
	} {
		_, err := documents(t, test.opt, writeFiles(t, map[string]string{test.name: test.body}))
		wantError(t, err, test.want...)
	}
}

// A quote that never closes must not load the whole file into memory.
func TestCSVOpenQuoteIsBounded(t *testing.T) {
	dir := writeFiles(t, map[string]string{"a.csv": "a\n\"" + strings.Repeat("line\n", 8<<20/5)})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := records(t, Options{MaxRecord: 100_000}, dir)
	runtime.ReadMemStats(&after)
	wantError(t, err, "a.csv:2", "longer than 100000")
	if n := after.TotalAlloc - before.TotalAlloc; n > 2<<20 {
		t.Errorf("%d bytes allocated with a limit of 100000", n)
	}
}

func TestRecordTextIsUTF8(t *testing.T) {
	dir := writeFiles(t, map[string]string{"a.csv": "text,b\n\xe9t\xe9,x\n"})
	recs, err := records(t, Options{}, dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = recs[0].Text("text")
	wantError(t, err, "a.csv:2", "invalid UTF-8", `field "text"`)
	docs, err := documents(t, Options{ReplaceInvalid: true}, dir)
	if err != nil || docs[0].Repaired != 2 {
		t.Errorf("%+v, %v", docs, err)
	}
	docs, err = documents(t, Options{ReplaceInvalid: true}, writeFiles(t, map[string]string{"a.jsonl": "{\"text\":\"\xff\"}\n"}))
	if err != nil || docs[0].Repaired != 1 || string(docs[0].Text) != "\uFFFD" {
		t.Errorf("%+v, %v", docs, err)
	}
}

func TestJSON(t *testing.T) {
	for _, test := range []struct {
		body string
		opt  Options
		want []string
	}{
		{`[{"text":"a","n":1}, {"text":"b","n":{"m":[true,null]}}]`, Options{},
			[]string{"1/0: n=1 text=a", "2/0: n=map[m:[true <nil>]] text=b"}},
		{" \n[]\n", Options{}, nil},
		{`{"version":"1.1","data":[{"text":"a"}],"more":[1,2]}`, Options{ArrayKey: "data"}, []string{"1/0: text=a"}},
		{"{\"text\":\"a\"}\n{\"text\":\"b\"}\n", Options{}, []string{"1/0: text=a", "2/0: text=b"}},
	} {
		recs, err := records(t, test.opt, writeFiles(t, map[string]string{"a.json": test.body}))
		if err != nil {
			t.Errorf("%q: %v", test.body, err)
			continue
		}
		if d := cmp.Diff(test.want, show(recs)); d != "" {
			t.Errorf("%q: %s", test.body, d)
		}
	}
	// A stop in the middle is not an error.
	f, err := OpenFiles([]string{writeFiles(t, map[string]string{"a.json": `[{"a":1},{"a":2},`, "b.json": "x"})}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range f.Records() {
		if err != nil {
			t.Error(err)
		}
		break
	}
}

func TestJSONErrors(t *testing.T) {
	long := `"` + strings.Repeat("x", 10_000) + `"`
	for _, test := range []struct {
		body string
		opt  Options
		want []string
	}{
		{"", Options{}, []string{"a.json", "no JSON value"}},
		{`[{"text":"a"},{"text":`, Options{}, []string{"a.json", "after record 1", "unexpected EOF"}},
		{`[{"text":"a"} {"text":"b"}]`, Options{}, []string{"a.json", "after record 1"}},
		{`[{"text":"a"}`, Options{}, []string{"a.json", "after record 1"}},
		{`[{"text":"a"}] x`, Options{}, []string{"a.json", "after record 1"}},
		{`[{"text":"a"}] {}`, Options{}, []string{"a.json", "want the end of the file"}},
		{`[1]`, Options{}, []string{"a.json#1", "want an object, found"}},
		{`[{"text":"` + "\xff" + `"}]`, Options{}, []string{"a.json#1", "invalid UTF-8"}},
		{`{"data":{"text":"a"}}`, Options{ArrayKey: "data"}, []string{"a.json", "want an array of records"}},
		{`{"rows":[]}`, Options{ArrayKey: "data"}, []string{"a.json", `no key "data"`, "data.array_key"}},
		{`[{"text":"a"},{"text":` + long + `}]`, Options{MaxRecord: 2000}, []string{"a.json", "after record 1", "longer than 2000 bytes"}},
		{`{"x":` + long + `,"data":[]}`, Options{ArrayKey: "data", MaxRecord: 2000}, []string{"a.json", "longer than 2000 bytes"}},
		{`{"data":[{"text":"a"}]}`, Options{}, []string{"a.json#1", `no field "text"; it has data`}},
	} {
		docs, err := documents(t, test.opt, writeFiles(t, map[string]string{"a.json": test.body}))
		if err == nil {
			t.Errorf("%.60q read as %q", test.body, texts(docs))
			continue
		}
		wantError(t, err, test.want...)
	}
}

func TestNoRecordsInText(t *testing.T) {
	_, err := records(t, Options{}, writeFiles(t, map[string]string{"a.txt": "x"}))
	wantError(t, err, "a.txt", "read as text by its extension", "no records", ".jsonl")
	_, err = records(t, Options{Format: FormatText}, writeFiles(t, map[string]string{"a.jsonl": "x"}))
	wantError(t, err, "a.jsonl", "because of data.format", "no records")
}

// Formats are chosen by the name of each file; one folder may mix them.
func TestMixedFolder(t *testing.T) {
	docs, err := documents(t, Options{}, writeFiles(t, map[string]string{
		"a.txt": "text", "b.jsonl": `{"text":"jsonl"}`, "c.json": `[{"text":"json"}]`,
		"d.csv": "text\ncsv\n", "e.tsv.gz": gzipped(t, "text\ntsv\n"), "f.ndjson.zst": zstded(t, `{"text":"ndjson"}`),
	}))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"text", "jsonl", "json", "csv", "tsv", "ndjson"}, texts(docs)); d != "" {
		t.Error(d)
	}
}

// fuzzFile reads a file that a fuzzer made and checks what holds for all of them: no
// panic, errors that name the file, valid text.
func fuzzFile(f *testing.F, name string, opt Options, seeds ...string) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		path := writeFiles(t, map[string]string{name: string(b)}) + "/" + name
		opt := opt
		opt.MaxRecord = 1 << 16
		docs, err := documents(t, opt, path)
		if err != nil && !strings.Contains(err.Error(), name) {
			t.Errorf("error does not name the file: %v", err)
		}
		for _, d := range docs {
			if !slices.Equal([]rune(string(d.Text)), []rune(strings.ToValidUTF8(string(d.Text), "?"))) {
				t.Errorf("document %s is not UTF-8: %q", d.ID, d.Text)
			}
		}
	})
}

func FuzzCSV(f *testing.F) {
	fuzzFile(f, "a.csv", Options{}, "text,b\n\"a\n\"\"b\",c\n", "text\n\"open", "\ufefftext\r\nx\r\n", "text,text\n", "\x1f\x8b")
}

func FuzzTSV(f *testing.F) {
	fuzzFile(f, "a.tsv", Options{NoHeader: true, TextField: "1"}, "a\tb\n\nc\td", "\xff\xfe", "x\n")
}

func FuzzJSONL(f *testing.F) {
	fuzzFile(f, "a.jsonl", Options{}, `{"text":"a"}`+"\n"+`{"text":"\ud83d\ude00"}`, `{"text":"\ud800"}`, `{"text":1}`, "[]", "null", "{\"text\":\"\xff\"}")
}

func FuzzJSON(f *testing.F) {
	fuzzFile(f, "a.json", Options{}, `[{"text":"a"},{"text":"b"}]`, `{"text":"a"}{"text":"b"}`, `[`, `[[[[[[`, `[{"text":"a"}]x`)
}

// BenchmarkDocuments reads records of about a kilobyte of text each.
func BenchmarkDocuments(b *testing.B) {
	text := strings.Repeat("The quick brown fox jumps over the lazy dog. ", 25)
	for name, line := range map[string]string{
		"a.jsonl": fmt.Sprintf("{\"title\":\"x\",\"text\":%q,\"n\":[1,2,3]}\n", text),
		"a.csv":   fmt.Sprintf("x,%q,7\n", text),
		"a.txt":   text + "\n",
	} {
		head := map[string]string{"a.csv": "title,text,n\n"}[name]
		dir := writeFiles(b, map[string]string{name: head + strings.Repeat(line, 10_000)})
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(10_000 * len(line)))
			for range b.N {
				docs, err := documents(b, Options{Split: SplitLine}, dir)
				if err != nil || len(docs) != 10_000 {
					b.Fatal(len(docs), err)
				}
			}
		})
	}
}
