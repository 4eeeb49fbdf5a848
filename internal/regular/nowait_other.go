//go:build !unix

package regular

// noWait is 0 where no name leads to a pipe.
const noWait = 0
