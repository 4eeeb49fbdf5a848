package pytorch

import (
	"archive/zip"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"sync"

	"github.com/snug-ml/snug/data/safetensors"
	"github.com/snug-ml/snug/internal/few"
)

// entry is one file of an archive, uncompressed.
type entry struct {
	name  string
	start int64 // in the archive
	data  []byte
	sum   uint32
	once  sync.Once
	err   error
}

// check compares the entry's checksum, once.
func (e *entry) check() error {
	e.once.Do(func() {
		if e.sum == 0 { // torch was told to leave it out
			return
		}
		if got := crc32.ChecksumIEEE(e.data); got != e.sum {
			e.err = fmt.Errorf("entry %q is damaged: its checksum is %08x, the archive says %08x; fetch the file again", few.Text(e.name, 80), got, e.sum)
		}
	})
	return e.err
}

// archive is the entries of a file, by name without the folder that they share.
type archive map[string]*entry

const (
	pickleName = "data.pkl"
	orderName  = "byteorder"
	dataPrefix = "data/"
)

// legacyMagic is the beginning of files of PyTorch before 1.6: a pickled number.
var legacyMagic = []byte{0x80, 0x02, 0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46, 0xf9}

func openArchive(raw []byte) (archive, error) {
	if bytes.HasPrefix(raw, legacyMagic) {
		return nil, fmt.Errorf("the file has the format of PyTorch before 1.6, which is not read; write it again: %s", convert)
	}
	if !bytes.HasPrefix(raw, []byte("PK")) {
		return nil, fmt.Errorf("is not a file of torch.save, which is a zip archive: fetch it again (a pointer of git-lfs is 130 bytes long)")
	}
	z, err := zip.NewReader(bytes.NewReader(raw), int64(len(raw)))
	if err != nil {
		return nil, fmt.Errorf("the archive is cut or damaged (%w): fetch the file again", err)
	}
	root, err := rootOf(z)
	if err != nil {
		return nil, err
	}
	a := archive{}
	var all []*entry
	for _, f := range z.File {
		e, err := open(f, raw)
		if err != nil {
			return nil, err
		}
		all = append(all, e)
		name, ours := strings.CutPrefix(f.Name, root)
		if !ours {
			return nil, fmt.Errorf("entry %q is outside folder %q, in which torch.save puts all", few.Text(f.Name, 80), few.Text(root, 80))
		}
		if a[name] != nil {
			return nil, fmt.Errorf("entry %q is there twice", few.Text(f.Name, 80))
		}
		a[name] = e
	}
	return a, apart(all)
}

// rootOf returns the folder of the pickle, with its slash.
func rootOf(z *zip.Reader) (string, error) {
	var roots []string
	script := false
	for _, f := range z.File {
		dir, name, _ := strings.Cut(f.Name, "/")
		if name == pickleName {
			roots = append(roots, dir+"/")
		}
		script = script || name == "constants.pkl"
	}
	switch {
	case script:
		return "", errors.New("is a TorchScript program, not a file of tensors; save its tensors: torch.save(torch.jit.load(FILE).state_dict(), FILE)")
	case len(roots) != 1:
		return "", fmt.Errorf("has %d entries called */%s, a file of torch.save has one", len(roots), pickleName)
	}
	return roots[0], nil
}

// open finds an entry in the file.
func open(f *zip.File, raw []byte) (*entry, error) {
	fail := func(format string, args ...any) (*entry, error) {
		return nil, fmt.Errorf("entry %q %s", few.Text(f.Name, 80), fmt.Sprintf(format, args...))
	}
	if f.Method != zip.Store || f.CompressedSize64 != f.UncompressedSize64 {
		return fail("is compressed: torch.save never does that; write the file again: %s", convert)
	}
	if f.Flags&1 != 0 {
		return fail("is encrypted: torch.save never does that")
	}
	start, err := f.DataOffset()
	if err != nil {
		return fail("is damaged (%v): fetch the file again", err)
	}
	size := f.UncompressedSize64
	if start < 0 || start > int64(len(raw)) || size > uint64(int64(len(raw))-start) {
		return fail("claims %d bytes from byte %d on, the file has %d: fetch it again", size, start, len(raw))
	}
	end := start + int64(size)
	return &entry{name: f.Name, start: start, data: raw[start:end:end], sum: f.CRC32}, nil
}

// apart refuses entries that share bytes.
func apart(all []*entry) error {
	slices.SortFunc(all, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(len(a.data), len(b.data)))
	})
	for i := 1; i < len(all); i++ {
		if before := all[i-1]; before.start+int64(len(before.data)) > all[i].start {
			return fmt.Errorf("entries %q and %q overlap: torch.save never does that", few.Text(before.name, 80), few.Text(all[i].name, 80))
		}
	}
	return nil
}

// storage is a run of elements that tensors view.
type storage struct {
	*entry
	key   string
	dtype safetensors.DType
	elems int64
}

// storage finds the storage of a persistent id: ("storage", type, key, device, elements).
func (a archive) storage(id tuple) (any, error) {
	if len(id) != 5 || id[0] != "storage" {
		return nil, fmt.Errorf("a persistent id is not that of a storage")
	}
	g, ok := id[1].(global)
	dtype, ok2 := storageTypes[g]
	key, ok3 := id[2].(string)
	elems, ok4 := id[4].(int64)
	if !ok || !ok2 || !ok3 || !ok4 || elems < 0 {
		return nil, fmt.Errorf("a storage of %s, key %s, %s elements: want a type of PyTorch's, a name and a number", kind(id[1]), kind(id[2]), kind(id[4]))
	}
	e := a[dataPrefix+key]
	if e == nil {
		return nil, fmt.Errorf("storage %q is not in the archive: fetch the file again", few.Text(key, 80))
	}
	width := int64(dtype.Bits() / 8)
	if have := int64(len(e.data)); have%width != 0 || have/width != elems {
		return nil, fmt.Errorf("storage %q has %d bytes, %d elements of %s need another number: fetch the file again", few.Text(key, 80), have, elems, dtype)
	}
	return &storage{entry: e, key: key, dtype: dtype, elems: elems}, nil
}

// as returns a storage of bytes as one with elements of a type.
func (s *storage) as(dtype safetensors.DType) (*storage, error) {
	width := int64(dtype.Bits() / 8)
	if s.dtype != safetensors.U8 || s.elems%width != 0 {
		return nil, fmt.Errorf("storage %q of %d elements of %s does not hold %s", few.Text(s.key, 80), s.elems, s.dtype, dtype)
	}
	return &storage{entry: s.entry, key: s.key, dtype: dtype, elems: s.elems / width}, nil
}
