package config

import "strings"

// SplitFlags takes the dotted flags out of a command line: --section.key value, --section.key=value, and
// --section.key alone for keys that are true or false. rest is everything else, in order. Arguments after --
// are left alone.
func SplitFlags(args []string) (overrides []Override, rest []string) {
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "--" {
			return overrides, append(rest, args[i:]...)
		}
		name, value, hasValue := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		if !strings.HasPrefix(arg, "--") || !strings.Contains(name, ".") {
			rest = append(rest, arg)
			continue
		}
		o := Override{Key: name, Text: value}
		if !hasValue {
			if i+1 < len(args) && !strings.HasPrefix(args[i+1], "--") {
				i++
				o.Text = args[i]
			} else {
				o.Bare = true
			}
		}
		overrides = append(overrides, o)
	}
	return overrides, rest
}
