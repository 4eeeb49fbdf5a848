//go:build nocuda

package dynlib

// Without says why this build loads no libraries.
const Without = "it was built with the tag nocuda, which makes a static program"
