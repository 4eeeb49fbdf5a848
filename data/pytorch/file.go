package pytorch

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/snug-ml/snug/data/safetensors"
	"github.com/snug-ml/snug/internal/few"
	"github.com/snug-ml/snug/internal/filemap"
)

// File is an open file of tensors. Its methods may be called from several
// goroutines until Close.
type File struct {
	path  string
	size  int64
	views map[string]*view
	unmap func() error
}

// Open maps a file and reads its pickle. Close it to unmap.
func Open(path string) (*File, error) {
	raw, unmap, err := filemap.Open(path)
	if err != nil {
		return nil, fmt.Errorf("pytorch: %w", err)
	}
	if len(raw) == 0 {
		return nil, errors.Join(&Error{Path: path, Problem: "the file is empty: fetch it again"}, unmap())
	}
	p, err := Parse(raw)
	if err != nil {
		if e := (*Error)(nil); errors.As(err, &e) {
			e.Path = path
		}
		return nil, errors.Join(err, unmap())
	}
	p.path, p.unmap = path, unmap
	return p, nil
}

// Parse reads a whole file in memory. The tensors point into raw.
func Parse(raw []byte) (*File, error) {
	a, err := openArchive(raw)
	if err != nil {
		return nil, errorf("", "%v", err)
	}
	pickle := a[pickleName]
	if len(pickle.data) > MaxPickle {
		return nil, errorf("", "%s has %d bytes, the most that is read are %d: save the model in several files", pickle.name, len(pickle.data), MaxPickle)
	}
	if order := a[orderName]; order != nil && string(order.data) != "little" {
		return nil, errorf("", "the values are in %q byte order, little is read: write the file again on another machine", few.Text(string(order.data), 20))
	}
	if err := pickle.check(); err != nil {
		return nil, errorf("", "%v", err)
	}
	root, err := unpickle(pickle.data, a.storage)
	if err != nil {
		return nil, errorf("", "%s: %v", few.Text(pickle.name, 80), err)
	}
	f := &File{size: int64(len(raw))}
	f.views, err = f.tensors(root)
	return f, err
}

// tensors returns the tensors of a dictionary that maps names to tensors and nothing
// else.
func (f *File) tensors(root any) (map[string]*view, error) {
	d, ok := root.(*dict)
	if !ok {
		return nil, errorf("", "the file has %s, want a dictionary of tensors: torch.save(model.state_dict(), FILE)", kind(root))
	}
	views := make(map[string]*view, len(d.keys))
	for i, k := range d.keys {
		name, ok := k.(string)
		if !ok {
			return nil, errorf("", "%s is a key of the dictionary, want the name of a tensor: torch.save(model.state_dict(), FILE)", kind(k))
		}
		v, ok := d.values[i].(*view)
		if !ok {
			return nil, errorf(name, "is %s: want a dictionary of tensors alone, as torch.save(model.state_dict(), FILE) writes", kind(d.values[i]))
		}
		if views[name] != nil {
			return nil, errorf(name, "the name appears twice")
		}
		// A view that repeats its storage may have any size.
		if most := max(f.size, 1<<20); v.size() > most {
			return nil, errorf(name, "has %d bytes, the file %d: it repeats its values; save a copy (.contiguous()) if it is meant to be so large", v.size(), f.size)
		}
		views[name] = v
	}
	return views, nil
}

// Tensors lists the tensors by name. An Offset counts from the start of the file.
func (f *File) Tensors() []safetensors.Info {
	list := make([]safetensors.Info, 0, len(f.views))
	for name, v := range f.views {
		list = append(list, v.info(name))
	}
	slices.SortFunc(list, func(a, b safetensors.Info) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// Tensor returns a tensor by name. Its Data must not be written to nor be used
// after Close.
func (f *File) Tensor(name string) (safetensors.Tensor, error) {
	v := f.views[name]
	if v == nil {
		return safetensors.Tensor{}, &Error{Path: f.path, Tensor: name, Problem: fmt.Sprintf("is not among the file's %d tensors", len(f.views))}
	}
	if err := v.storage.check(); err != nil {
		return safetensors.Tensor{}, &Error{Path: f.path, Tensor: name, Problem: err.Error()}
	}
	return safetensors.NewTensor(f.path, v.info(name), v.bytes()), nil
}

// Close unmaps the file; tensors taken from it must no longer be touched.
func (f *File) Close() error {
	unmap := f.unmap
	f.views, f.unmap = nil, nil
	if unmap == nil {
		return nil
	}
	if err := unmap(); err != nil {
		return fmt.Errorf("pytorch: unmap %s: %w", f.path, err)
	}
	return nil
}
