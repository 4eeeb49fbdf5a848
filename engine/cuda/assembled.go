package cuda

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/internal/durable"
	"github.com/snug-ml/snug/internal/regular"
	"github.com/snug-ml/snug/internal/size"
)

// Assembled keeps the cubins that the driver's assembler made of kernels, a file each: the
// next process that loads the same program need not assemble it.
type Assembled struct {
	// Folder has the files; empty: nothing is kept.
	Folder string
	// Driver is the driver's version: another one assembles anew.
	Driver string
	// Bound is how many bytes the files may take; 0: AssembledBound.
	Bound int64
	// Note is called with what is wrong with a file, and why nothing can be kept; nil:
	// nobody is told.
	Note func(text string)

	// write puts a file into the folder; nil: durable.ReplaceIn.
	write func(root *os.Root, name string, content []byte) error
	// mu guards what was told: programs may be loaded at the same time.
	mu   *sync.Mutex
	told map[string]bool
}

// AssembledBound is how many bytes the cubins of a folder take at most. Those of a program
// have a few MB.
const AssembledBound = 256 << 20

// KeepAssembled makes the programs that are loaded from now on use what is kept.
func (b *Backend) KeepAssembled(k Assembled) {
	k.mu, k.told = &sync.Mutex{}, map[string]bool{}
	b.assembled = &k
}

// A file is cubinMark, the key and the cubin's hash as text, a line each, then the cubin.
// The mark changes with the way in which cubins are assembled, and with the layout.
const (
	cubinMark   = "snug kernels 1\n"
	cubinHeader = len(cubinMark) + 2*(2*sha256.Size+1)
	cubinPrefix = "kernels-"
	cubinSuffix = ".cubin"
)

// kernels assembles PTX, or loads what was kept of it.
func (b *Backend) kernels(ptx string) (driver.Module, error) {
	k := b.assembled
	key := k.key(b.ctx.Card().Capability(), ptx)
	if cubin := k.read(key); cubin != nil {
		m, err := b.ctx.Load(cubin)
		var e *driver.Error
		if err == nil || !errors.As(err, &e) || e.Code != driver.InvalidImage && e.Code != driver.NoBinaryForGPU && e.Code != driver.InvalidPTX {
			return m, err
		}
		k.tell("%s is assembled anew: %v", k.path(key), err)
	}
	cubin, err := b.ctx.Assemble(ptx)
	if err != nil {
		return nil, err
	}
	m, err := b.ctx.Load(cubin)
	if err == nil {
		k.keep(key, cubin)
	}
	return m, err
}

// key identifies what PTX is assembled to.
func (k *Assembled) key(capability int, ptx string) string {
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "%s%q %d\n%s", cubinMark, k.Driver, capability, ptx)
	return hex.EncodeToString(h.Sum(nil))
}

func fileOf(key string) string { return cubinPrefix + key[:32] + cubinSuffix }

func (k *Assembled) path(key string) string {
	return k.Folder + string(os.PathSeparator) + fileOf(key)
}

// tell says something once.
func (k *Assembled) tell(format string, args ...any) {
	text := strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "; ")
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.Note != nil && !k.told[text] {
		k.told[text] = true
		k.Note(text)
	}
}

// read gives what is kept; nil: nothing that can be used.
func (k *Assembled) read(key string) []byte {
	if k.Folder == "" {
		return nil
	}
	root, err := os.OpenRoot(k.Folder)
	if err != nil {
		return nil // it is made, or its error told, by keep
	}
	defer func() { _ = root.Close() }()
	content, err := k.content(root, fileOf(key))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var cubin []byte
	if err == nil {
		cubin, err = parseCubin(key, content)
	}
	if err != nil {
		k.tell("%s is not used, and its kernels are assembled anew: %v", k.path(key), reason(err))
		return nil
	}
	return cubin
}

func (k *Assembled) content(root *os.Root, name string) (content []byte, err error) {
	f, err := regular.OpenIn(root, name, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	if content, err = regular.ReadAll(f, k.bound()); err == nil {
		// Those that are used stay; where that cannot be noted they may go first.
		_ = root.Chtimes(name, time.Time{}, time.Now())
	}
	return content, errors.Join(err, f.Close())
}

// parseCubin is the cubin of a file that must have a key.
func parseCubin(key string, content []byte) ([]byte, error) {
	if !bytes.HasPrefix(content, []byte(cubinMark)) || len(content) < cubinHeader {
		return nil, errors.New("it does not begin as such a file does")
	}
	head, cubin := content[len(cubinMark):cubinHeader], content[cubinHeader:]
	if string(head[:2*sha256.Size]) != key {
		return nil, errors.New("it has other kernels, or another driver's")
	}
	if string(head[2*sha256.Size:]) != hashLine(cubin) {
		return nil, errors.New("it is damaged: its hash is another one")
	}
	return cubin, nil
}

// hashLine is the line of the header that has a cubin's hash, with the ends of the lines
// around it.
func hashLine(cubin []byte) string { return fmt.Sprintf("\n%x\n", sha256.Sum256(cubin)) }

func (k *Assembled) bound() int64 { return cmp.Or(k.Bound, AssembledBound) }

// keep writes a cubin, and removes the oldest files of the folder where there are too many.
func (k *Assembled) keep(key string, cubin []byte) {
	if k.Folder == "" {
		return
	}
	if err := k.replace(fileOf(key), slices.Concat([]byte(cubinMark+key+hashLine(cubin)), cubin)); err != nil {
		k.tell("%s: assembled kernels are not kept there, so that the next run has to assemble them too: %v", k.Folder, reason(err))
	}
}

func (k *Assembled) replace(name string, content []byte) (err error) {
	if int64(len(content)) > k.bound() {
		return fmt.Errorf("one cubin is larger than the %s that all may take", size.Bytes(k.bound()))
	}
	if err := os.MkdirAll(k.Folder, 0o777); err != nil {
		return err
	}
	root, err := os.OpenRoot(k.Folder)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	write := k.write
	if write == nil {
		write = durable.ReplaceIn
	}
	if err := write(root, name, content); err != nil {
		return err
	}
	files, err := cubins(root)
	if err != nil {
		return err
	}
	var all int64
	for _, f := range files {
		all += f.Size()
	}
	for _, f := range files {
		if all <= k.bound() {
			break
		}
		if f.Name() == name {
			continue
		}
		// Another process may have removed it.
		if err := root.Remove(f.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		all -= f.Size()
	}
	return nil
}

// cubins are the files of a folder, the oldest first.
func cubins(root *os.Root) (files []fs.FileInfo, err error) {
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), cubinPrefix) || !strings.HasSuffix(e.Name(), cubinSuffix) || !e.Type().IsRegular() {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) { // removed meanwhile
			continue
		}
		if err != nil {
			return nil, err
		}
		files = append(files, info)
	}
	slices.SortFunc(files, func(a, b fs.FileInfo) int {
		return cmp.Or(a.ModTime().Compare(b.ModTime()), strings.Compare(a.Name(), b.Name()))
	})
	return files, nil
}

// CountAssembled is how many cubins a folder has, and their bytes.
func CountAssembled(folder string) (n int, bytes int64, err error) {
	root, err := os.OpenRoot(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	files, err := cubins(root)
	for _, f := range files {
		bytes += f.Size()
	}
	return len(files), bytes, err
}

// reason is an error without the name of the file, which may be a temporary one.
func reason(err error) error {
	if p := (*fs.PathError)(nil); errors.As(err, &p) {
		return p.Err
	}
	if l := (*os.LinkError)(nil); errors.As(err, &l) {
		return l.Err
	}
	return err
}
