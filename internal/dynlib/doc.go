// Package dynlib loads shared libraries while the program runs, without cgo: drivers and
// libraries that a machine may or may not have. What is loaded stays loaded.
package dynlib
