package data

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"
)

// squad has the nesting of Hugging Face files: optional fields, lists of
// strings, structs of lists, lists of structs.
type squad struct {
	Text    string   `parquet:"text,zstd"`
	Title   *string  `parquet:"title,optional,dict"`
	Label   int32    `parquet:"label"`
	Score   float64  `parquet:"score"`
	Gold    bool     `parquet:"gold"`
	Tags    []string `parquet:"tags,list"`
	Answers struct {
		Text  []string `parquet:"text,list"`
		Start []int64  `parquet:"answer_start,list"`
	} `parquet:"answers"`
	Turns []turn `parquet:"turns,list"`
}

type turn struct {
	Role string   `parquet:"role"`
	Said []string `parquet:"said,list"`
}

func newSquad(i int) squad {
	s := squad{Text: fmt.Sprintf("text %d", i), Label: int32(-i), Score: float64(i) / 4, Gold: i%2 == 0}
	if i%3 > 0 {
		title := fmt.Sprintf("title %d", i%5)
		s.Title = &title
	}
	for k := range i % 4 {
		s.Tags = append(s.Tags, fmt.Sprint("tag", k))
		s.Answers.Text = append(s.Answers.Text, fmt.Sprint("answer", k))
		s.Answers.Start = append(s.Answers.Start, int64(k))
		s.Turns = append(s.Turns, turn{Role: fmt.Sprint("role", k), Said: s.Tags[:k]})
	}
	return s
}

// want returns what a record of newSquad(i) must contain.
func (s squad) want() map[string]any {
	list := func(in []string) []any {
		out := []any{}
		for _, x := range in {
			out = append(out, x)
		}
		return out
	}
	m := map[string]any{"text": s.Text, "title": nil, "label": int64(s.Label), "score": s.Score, "gold": s.Gold, "tags": list(s.Tags)}
	if s.Title != nil {
		m["title"] = *s.Title
	}
	starts, turns := []any{}, []any{}
	for _, x := range s.Answers.Start {
		starts = append(starts, x)
	}
	for _, x := range s.Turns {
		turns = append(turns, map[string]any{"role": x.Role, "said": list(x.Said)})
	}
	m["answers"] = map[string]any{"text": list(s.Answers.Text), "answer_start": starts}
	m["turns"] = turns
	return m
}

// writeParquet writes n rows in row groups of perGroup.
func writeParquet(t testing.TB, n, perGroup int) string {
	t.Helper()
	var b bytes.Buffer
	w := parquet.NewGenericWriter[squad](&b, parquet.PageBufferSize(256))
	for i := range n {
		if _, err := w.Write([]squad{newSquad(i)}); err != nil {
			t.Fatal(err)
		}
		if (i+1)%perGroup == 0 {
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(writeFiles(t, map[string]string{"a.parquet": b.String()}), "a.parquet")
}

func TestParquet(t *testing.T) {
	recs, err := records(t, Options{}, writeParquet(t, 1000, 300))
	if err != nil {
		t.Fatal(err)
	}
	if len(recs) != 1000 {
		t.Fatalf("%d records, want 1000", len(recs))
	}
	for i, r := range recs {
		if d := cmp.Diff(newSquad(i).want(), r.fields); d != "" {
			t.Fatalf("row %d: %s", i, d)
		}
		if r.Row != int64(i+1) || !strings.HasSuffix(r.Where(), fmt.Sprintf("a.parquet#%d", i+1)) {
			t.Fatalf("row %d is %s", i, r.Where())
		}
	}
	if n, err := recs[7].Int("label"); err != nil || n != -7 {
		t.Errorf("label %d, %v", n, err)
	}
}

func TestParquetDocuments(t *testing.T) {
	name := writeParquet(t, 10, 100)
	docs, err := documents(t, Options{GroupField: "gold"}, name)
	if err != nil {
		t.Fatal(err)
	}
	if len(docs) != 10 || string(docs[3].Text) != "text 3" || docs[3].Group != "false" {
		t.Errorf("%+v", docs)
	}
	_, err = documents(t, Options{TextField: "body"}, name)
	wantError(t, err, "a.parquet", `no field "body"`, "text, title, label", "data.text_field")
	_, err = documents(t, Options{TextField: "title"}, name)
	wantError(t, err, "a.parquet#1", `"title"`, "found null")
}

func TestParquetUnsupported(t *testing.T) {
	type row struct {
		Price int64 `parquet:"price,decimal(2:10)"`
	}
	var b bytes.Buffer
	w := parquet.NewGenericWriter[row](&b)
	if _, err := w.Write([]row{{1}}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := records(t, Options{}, writeFiles(t, map[string]string{"a.parquet": b.String()}))
	wantError(t, err, "a.parquet", "column price", "DECIMAL", "not supported")
}

func TestParquetDamage(t *testing.T) {
	good, err := os.ReadFile(writeParquet(t, 200, 50))
	if err != nil {
		t.Fatal(err)
	}
	read := func(b []byte) error {
		_, err := records(t, Options{}, writeFiles(t, map[string]string{"a.parquet": string(b)}))
		return err
	}
	for want, bad := range map[string][]byte{
		"too few":     []byte("PAR1"),
		"ends with":   good[:len(good)-1],
		"row group 2": breakGroup(t, good, 2),
	} {
		err := read(bad)
		wantError(t, err, "a.parquet", want)
	}
	huge := bytes.Clone(good)
	binary.LittleEndian.PutUint32(huge[len(huge)-8:], 1<<31)
	wantError(t, read(huge), "footer claims 2147483648")
	// Whatever is damaged, the result is an error or data, never a panic, and never as
	// much memory as is claimed.
	r := rand.New(rand.NewPCG(1, 2))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 300 {
		bad := bytes.Clone(good)
		for range 1 + r.IntN(3) {
			bad[r.IntN(len(bad))] ^= 1 << r.IntN(8)
		}
		if err := read(bad); err != nil && !strings.Contains(err.Error(), "a.parquet") {
			t.Errorf("error does not name the file: %v", err)
		}
	}
	runtime.ReadMemStats(&after)
	if n := (after.TotalAlloc - before.TotalAlloc) / 300; n > 64<<20 {
		t.Errorf("%d bytes allocated a file of %d", n, len(good))
	}
}

// breakGroup overwrites the column chunks of one row group.
func breakGroup(t testing.TB, file []byte, group int) []byte {
	t.Helper()
	f, err := parquet.OpenFile(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	bad := bytes.Clone(file)
	for _, c := range f.Metadata().RowGroups[group].Columns {
		at := c.MetaData.DataPageOffset
		copy(bad[at:at+c.MetaData.TotalCompressedSize/2], bytes.Repeat([]byte{0xff}, 1<<16))
	}
	return bad
}

func FuzzParquet(f *testing.F) {
	good, err := os.ReadFile(writeParquet(f, 20, 10))
	if err != nil {
		f.Fatal(err)
	}
	fuzzFile(f, "a.parquet", Options{}, string(good), "PAR1PAR1PAR1")
}
