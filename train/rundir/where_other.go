//go:build !linux

package rundir

// where is unknown here: a folder that was moved counts as gone.
func (d *Dir) where() (path string, ok bool) { return "", false }
