package rundir

import (
	"fmt"
	"os"
)

// where asks the kernel for the folder's name.
func (d *Dir) where() (path string, ok bool) {
	f, err := d.root.Open(".")
	if err != nil {
		return "", false
	}
	defer f.Close() // opened to be asked
	path, err = os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	return path, err == nil
}
