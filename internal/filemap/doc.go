// Package filemap maps files of weights and of tokens into memory, read-only.
//
// A map of a file that someone else truncates faults on access (SIGBUS), as with every
// memory map.
package filemap

import (
	"fmt"

	"github.com/snug-ml/snug/internal/regular"
)

// Open maps a whole file, which may be empty. The bytes stay valid until unmap,
// even when the file is renamed or removed meanwhile.
func Open(path string) (raw []byte, unmap func() error, err error) {
	f, err := regular.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close() // the map stays valid without the descriptor
	st, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if st.Size() == 0 {
		return nil, func() error { return nil }, nil
	}
	if raw, unmap, err = mapAll(f, st.Size()); err != nil {
		return nil, nil, fmt.Errorf("map %s: %w", path, err)
	}
	return raw, unmap, nil
}
