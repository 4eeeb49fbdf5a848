package data

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// readParquet reads all records of a file and returns what that allocated.
func readParquet(path string, opt Options) (rows int, allocated uint64, err error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	defer func() {
		runtime.ReadMemStats(&after)
		allocated = after.TotalAlloc - before.TotalAlloc
	}()
	f, err := OpenFiles([]string{path}, opt)
	if err != nil {
		return 0, 0, err
	}
	for _, err := range f.Records() {
		if err != nil {
			return rows, 0, err
		}
		rows++
	}
	return rows, 0, nil
}

func parquetFile[T any](t *testing.T, rows []T, opts ...parquet.WriterOption) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a.parquet")
	var b bytes.Buffer
	w := parquet.NewGenericWriter[T](&b, opts...)
	if _, err := w.Write(rows); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A row that unpacks to more than the limit of a record is refused, naming the key that
// allows more, whatever the compression.
func TestParquetLongRows(t *testing.T) {
	type row struct {
		Text string `parquet:"text"`
	}
	type list struct {
		Text string  `parquet:"text"`
		List []int32 `parquet:"list,dict"`
	}
	long := []row{{"short"}, {strings.Repeat("a", 2<<20)}}
	for name, codec := range map[string]compress.Codec{
		"none": &parquet.Uncompressed, "snappy": &parquet.Snappy, "gzip": &parquet.Gzip, "zstd": &parquet.Zstd, "brotli": &parquet.Brotli, "lz4": &parquet.Lz4Raw,
	} {
		path := parquetFile(t, long, parquet.Compression(codec))
		rows, _, err := readParquet(path, Options{MaxRecord: 1 << 20})
		if rows != 1 || err == nil || !strings.Contains(err.Error(), "raise data.max_record") || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %d rows, %v", name, rows, err)
		}
		if rows, _, err := readParquet(path, Options{MaxRecord: 4 << 20}); rows != 2 || err != nil {
			t.Errorf("%s, allowed: %d rows, %v", name, rows, err)
		}
	}
	// A million zeros are a run of a few bytes.
	zeros := parquetFile(t, []list{{"short", make([]int32, 3)}, {"long", make([]int32, 1<<20)}}, parquet.Compression(&parquet.Zstd))
	st, err := os.Stat(zeros)
	if err != nil || st.Size() > 8<<10 {
		t.Errorf("the file is no bomb: %d bytes, %v", st.Size(), err)
	}
	rows, _, err := readParquet(zeros, Options{MaxRecord: 1 << 20})
	if rows != 1 || err == nil || !strings.Contains(err.Error(), "raise data.max_record") {
		t.Errorf("zeros: %d rows, %v", rows, err)
	}
}

// A page that unpacks to more than its header claims costs no more than that.
func TestParquetPagesThatGrow(t *testing.T) {
	for name, codec := range map[string]compress.Codec{
		"snappy": &parquet.Snappy, "gzip": &parquet.Gzip, "zstd": &parquet.Zstd, "brotli": &parquet.Brotli, "lz4": &parquet.Lz4Raw,
	} {
		packed, err := codec.Encode(nil, make([]byte, 64<<20))
		if err != nil {
			t.Fatal(err)
		}
		h := format.PageHeader{UncompressedPageSize: 1000, CompressedPageSize: int32(len(packed))}
		page := io.NewSectionReader(bytes.NewReader(packed), 0, int64(len(packed)))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err = checkUnpacked(page, codec.CompressionCodec(), h)
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), "claims") {
			t.Errorf("%s: %v", name, err)
		}
		// LZ4 is read as a whole: 255 times less than it unpacks to.
		if n := after.TotalAlloc - before.TotalAlloc; n > 10<<20 {
			t.Errorf("%s: %d bytes allocated for a page of %d", name, n, len(packed))
		}
		runtime.GC()
	}
	var broken [100]byte
	for i := range broken {
		broken[i] = 0xff
	}
	h := format.PageHeader{UncompressedPageSize: 1000, CompressedPageSize: 100}
	if err := checkUnpacked(io.NewSectionReader(bytes.NewReader(broken[:]), 0, 100), format.Lz4Raw, h); err == nil {
		t.Error("a damaged LZ4 page passes")
	}
}

// Claims of the headers are checked against the files.
func TestParquetClaims(t *testing.T) {
	page := func(h format.PageHeader) string {
		head, err := thrift.Marshal(&thrift.CompactProtocol{}, &h)
		if err != nil {
			t.Fatal(err)
		}
		file := append([]byte("PAR1"), head...)
		file = append(file, make([]byte, 16)...)
		_, err = checkPages(bytes.NewReader(file), int64(len(file)), format.ColumnMetaData{DataPageOffset: 4, TotalCompressedSize: int64(len(file)) - 4})
		return fmt.Sprint(err)
	}
	v1 := format.PageHeader{UncompressedPageSize: 16, CompressedPageSize: 16}
	v1.DataPageHeader.Valid, v1.DataPageHeader.V.NumValues = true, 1<<31-1
	v2 := format.PageHeader{Type: format.DataPageV2, UncompressedPageSize: 16, CompressedPageSize: 16}
	v2.DataPageHeaderV2.Valid, v2.DataPageHeaderV2.V.NumValues = true, 1<<31-1
	dict := format.PageHeader{Type: format.DictionaryPage, UncompressedPageSize: 16, CompressedPageSize: 16}
	dict.DictionaryPageHeader.Valid, dict.DictionaryPageHeader.V.NumValues = true, 1<<31-1
	big := format.PageHeader{UncompressedPageSize: 1<<31 - 1, CompressedPageSize: 16}
	for name, c := range map[string]struct {
		h    format.PageHeader
		want string
	}{
		"values": {v1, "2147483647 values"}, "values, version 2": {v2, "2147483647 values"}, "a dictionary": {dict, "2147483647 values"}, "bytes": {big, "unpack to 2147483647"},
	} {
		if got := page(c.h); !strings.Contains(got, c.want) {
			t.Errorf("%s: %s", name, got)
		}
	}
	// Groups within groups, a hundred thousand deep: the library calls itself for each.
	meta := format.FileMetaData{}
	for i := range 100_000 {
		e := format.SchemaElement{Name: "g"}
		if i < 99_999 {
			e.NumChildren.Valid, e.NumChildren.V = true, 1
		}
		meta.Schema = append(meta.Schema, e)
	}
	foot, err := thrift.Marshal(&thrift.CompactProtocol{}, &meta)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "deep.parquet")
	file := append([]byte("PAR1"), foot...)
	file = append(binary.LittleEndian.AppendUint32(file, uint32(len(foot))), "PAR1"...)
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := readParquet(path, Options{}); err == nil || !strings.Contains(err.Error(), "more than 100 groups") {
		t.Errorf("a deep schema: %v", err)
	}
}
