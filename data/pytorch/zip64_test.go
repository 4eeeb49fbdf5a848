package pytorch

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snug-ml/snug/internal/regular"
)

// zip64 writes the end of an archive like in files of more than 4 GiB, or of more than
// 65,535 entries: offsets, sizes and counts are in records of their own, and the original
// fields are all ones.
func zip64(t *testing.T, raw []byte) []byte {
	t.Helper()
	le := binary.LittleEndian
	end := bytes.LastIndex(raw, []byte("PK\x05\x06"))
	at, n := int(le.Uint32(raw[end+16:])), int(le.Uint16(raw[end+10:]))
	out := append([]byte(nil), raw[:at]...)
	central := raw[at:end]
	start := len(out)
	for range n {
		name, extra, comment := int(le.Uint16(central[28:])), int(le.Uint16(central[30:])), int(le.Uint16(central[32:]))
		h := append([]byte(nil), central[:46]...)
		sized := le.AppendUint64(le.AppendUint16(le.AppendUint16(nil, 1), 24), uint64(le.Uint32(h[24:])))
		sized = le.AppendUint64(le.AppendUint64(sized, uint64(le.Uint32(h[20:]))), uint64(le.Uint32(h[42:])))
		le.PutUint16(h[30:], uint16(len(sized)+extra))
		for _, field := range []int{20, 24, 42} {
			le.PutUint32(h[field:], 1<<32-1)
		}
		out = append(append(append(out, h...), central[46:46+name]...), sized...)
		out = append(out, central[46+name:46+name+extra+comment]...)
		central = central[46+name+extra+comment:]
	}
	size, record := len(out)-start, len(out)
	out = le.AppendUint64(append(out, "PK\x06\x06"...), 44)
	out = le.AppendUint64(append(out, 45, 0, 45, 0), 0) // versions, disks
	for _, v := range []int{n, n, size, start} {
		out = le.AppendUint64(out, uint64(v))
	}
	out = le.AppendUint64(append(out, "PK\x06\x07\x00\x00\x00\x00"...), uint64(record))
	out = le.AppendUint32(out, 1)
	return append(out, "PK\x05\x06\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00"...)
}

// An archive with the records of large files has the same tensors, and their claims are
// checked against the file like those of small ones.
func TestZip64(t *testing.T) {
	raw, err := regular.Read(filepath.Join("testdata", "protocol2.bin"), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	large := zip64(t, raw)
	z, err := zip.NewReader(bytes.NewReader(large), int64(len(large)))
	if err != nil || z.File[0].CompressedSize64 >= 1<<32-1 {
		t.Fatalf("the archive is not what this test needs: %v", err)
	}
	a, err := openArchive(raw)
	if err != nil {
		t.Fatal(err)
	}
	b, err := openArchive(large)
	if err != nil {
		t.Fatal(err)
	}
	if len(a) != len(b) || len(a) < 4 {
		t.Fatalf("%d entries, want %d", len(b), len(a))
	}
	for name, x := range a {
		if y := b[name]; y == nil || y.start != x.start || !bytes.Equal(x.data, y.data) || y.check() != nil {
			t.Errorf("entry %q differs", name)
		}
	}
	// The size of the first entry is the first number of its record.
	record := bytes.Index(large, []byte("\x01\x00\x18\x00"))
	for _, claim := range []uint64{1 << 33, 1<<63 - 1, 1<<64 - 1} {
		hostile := append([]byte(nil), large...)
		binary.LittleEndian.PutUint64(hostile[record+4:], claim)
		binary.LittleEndian.PutUint64(hostile[record+12:], claim)
		if _, err := openArchive(hostile); err == nil || !strings.Contains(err.Error(), "fetch") {
			t.Errorf("an entry of %d bytes: %v", claim, err)
		}
	}
}
