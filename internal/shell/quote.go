// Package shell writes words as a shell reads them, for commands that messages advise.
package shell

import "strings"

// Quote quotes a word where a shell would read it otherwise.
func Quote(word string) string {
	if word != "" && !strings.ContainsAny(word, " \t\n'\"\\$`*?[]{}()<>|&;#~!") {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// Path is Quote for a path, which is not taken for a flag.
func Path(path string) string {
	if strings.HasPrefix(path, "-") {
		path = "./" + path
	}
	return Quote(path)
}
