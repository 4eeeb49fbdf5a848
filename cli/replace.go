package cli

import (
	"errors"
	"os"
)

// replaceFile writes a file so that a crash leaves the old one or the new one,
// never a part: under another name first, synced, then renamed.
func replaceFile(path string, content []byte) error {
	tmp := path + ".tmp"
	f, err := os.Create(tmp)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return os.Rename(tmp, path)
}
