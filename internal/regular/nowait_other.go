//go:build !unix

package regular

// noWait is nothing where no name leads to a pipe.
const noWait = 0
