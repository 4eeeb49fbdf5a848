//go:build !nocuda

package dynlib

// Without says why a build loads no libraries, if it loads none.
const Without = "it is for Linux on amd64 and arm64"
