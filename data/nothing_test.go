package data

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// A file from an old Mac is one line for a line reader; the whole file would be the
// header, or one document.
func TestCarriageReturnsAlone(t *testing.T) {
	lines := "a\tb\r" + strings.Repeat("c\td\r", 50)
	dir := writeFiles(t, map[string]string{
		"a.csv": strings.ReplaceAll(lines, "\t", ","), "a.tsv": lines, "a.jsonl": strings.Repeat("{\"text\": \"a\"}\r", 9), "a.txt": lines,
		"dos.csv": "text\r\nb\r\nc\r\n", "end.csv": "text\r", "cell.csv": "text\n\"b\rc\"\n",
	})
	read := func(name, split string) error {
		f, err := OpenFiles([]string{filepath.Join(dir, name)}, Options{Split: split, TextField: "text"})
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range f.Documents() {
			if err != nil {
				return err
			}
		}
		return nil
	}
	for _, c := range []struct {
		name, split string
		refused     bool
	}{
		{"a.csv", "", true}, {"a.tsv", "", true}, {"a.jsonl", "", true}, {"dos.csv", "", false}, {"end.csv", "", false}, {"cell.csv", "", false},
		{"a.txt", SplitFile, false}, {"a.txt", SplitLine, true}, {"a.txt", SplitParagraph, true}, {"a.txt", SplitChunk, true},
	} {
		err := read(c.name, c.split)
		if refused := err != nil && strings.Contains(err.Error(), c.name+": its lines end with carriage returns only"); refused != c.refused || !refused && err != nil {
			t.Errorf("%s by %q: %v", c.name, c.split, err)
		}
	}
}

// A Parquet file without rows is valid: it is empty, not damaged.
func TestParquetWithoutRows(t *testing.T) {
	none := writeParquet(t, 0, 10)
	// Arrow writes a row group anyway, whose columns have no pages.
	group := writeParquet(t, 3, 10)
	raw, err := os.ReadFile(group)
	if err != nil {
		t.Fatal(err)
	}
	tail := len(raw) - 8
	at := tail - int(binary.LittleEndian.Uint32(raw[tail:]))
	var meta format.FileMetaData
	protocol := new(thrift.CompactProtocol)
	if err := thrift.Unmarshal(protocol, raw[at:tail], &meta); err != nil {
		t.Fatal(err)
	}
	meta.NumRows = 0
	for i := range meta.RowGroups {
		meta.RowGroups[i].NumRows = 0
		for j := range meta.RowGroups[i].Columns {
			c := &meta.RowGroups[i].Columns[j].MetaData
			c.NumValues, c.DataPageOffset, c.TotalCompressedSize, c.TotalUncompressedSize = 0, 0, 0, 0
		}
	}
	footer, err := thrift.Marshal(protocol, &meta)
	if err != nil {
		t.Fatal(err)
	}
	file := binary.LittleEndian.AppendUint32(append(raw[:at:at], footer...), uint32(len(footer)))
	writeFile(t, group, append(file, "PAR1"...))
	for _, name := range []string{none, group} {
		f, err := OpenFiles([]string{name}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		for r, err := range f.Records() {
			t.Errorf("%v %v", r, err)
		}
	}
}
