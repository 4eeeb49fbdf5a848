// Package filemap maps files of weights into memory, read-only.
//
// A map of a file that somebody else truncates faults on access (SIGBUS), as
// with every memory map.
package filemap
