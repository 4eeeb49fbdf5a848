// Package lines says which line of the CUDA C++ sources a line of PTX comes from. The fake driver uses it to
// name places of faults; snug itself carries no such tables.
package lines

import (
	"compress/gzip"
	"embed"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/snug-ml/snug/engine/cuda/kernels"
)

//go:embed sm_*
var files embed.FS

// kernel is what stands between the braces of a kernel, line by line, and where it comes from.
type kernel struct {
	body    []string
	changes []change
}

// change says that the lines from one on come from a line of a source; line 0 is code that the compiler made
// of several.
type change struct {
	from int
	file string
	line int
}

// source is the place that line at of the body comes from.
func (k *kernel) source(at int) string {
	i, found := slices.BinarySearchFunc(k.changes, at, func(c change, at int) int { return c.from - at })
	if !found {
		i--
	}
	about := ""
	for ; i >= 0; i-- {
		if c := k.changes[i]; c.line > 0 {
			return fmt.Sprintf("%s%s:%d", about, c.file, c.line)
		}
		about = "near "
	}
	return ""
}

// libraries holds the kernels of each target by name.
var libraries = map[int]func() (map[string]*kernel, error){}

func init() {
	for _, target := range kernels.Targets {
		libraries[target] = sync.OnceValues(func() (map[string]*kernel, error) { return library(target) })
	}
}

func library(target int) (map[string]*kernel, error) {
	dir := fmt.Sprintf("sm_%d", target)
	list, err := files.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	all := map[string]*kernel{}
	for _, f := range list {
		text, err := kernels.Embedded.Family(target, strings.TrimSuffix(f.Name(), ".gz"))
		if err != nil {
			return nil, err
		}
		texts := strings.Split(text, "\n")
		for _, e := range entries(texts) {
			all[e.name] = &kernel{body: texts[e.first:e.end]}
		}
		if err := readTable(dir+"/"+f.Name(), all); err != nil {
			return nil, fmt.Errorf("%s/%s: %w", dir, f.Name(), err)
		}
	}
	return all, nil
}

// readTable reads what lines.awk wrote about a family's kernels.
func readTable(path string, found map[string]*kernel) error {
	packed, err := files.Open(path)
	if err != nil {
		return err
	}
	unpacked, err := gzip.NewReader(packed)
	if err != nil {
		return err
	}
	table, err := io.ReadAll(unpacked)
	if err != nil {
		return err
	}
	var names []string
	var k *kernel
	at := -1
	for row := range strings.Lines(string(table)) {
		row = strings.TrimSuffix(row, "\n")
		if name, ok := strings.CutPrefix(row, "="); ok {
			if k, at = found[name], -1; k == nil {
				return fmt.Errorf("there is no kernel %s", name)
			}
			continue
		}
		if k == nil {
			names = append(names, row)
			continue
		}
		var lines, file, line int
		if n, err := fmt.Sscanf(row, "%d %d %d", &lines, &file, &line); n != 3 || err != nil {
			return fmt.Errorf("%q is no row of a table", row)
		}
		at += lines
		if at >= len(k.body) || file < 1 || file > len(names) {
			return fmt.Errorf("%q: there is no such line or file", row)
		}
		k.changes = append(k.changes, change{at, names[file-1], line})
	}
	return nil
}

// entry is a kernel in a text: the lines between its braces.
type entry struct {
	name       string
	first, end int
}

func entries(texts []string) (found []entry) {
	name := ""
	first := 0
	for i, line := range texts {
		if rest, ok := strings.CutPrefix(line, ".visible .entry "); ok {
			name, _, _ = strings.Cut(rest, "(")
		}
		switch {
		case name == "":
		case line == "{":
			first = i + 1
		case line == "}":
			found = append(found, entry{name, first, i})
			name = ""
		}
	}
	return found
}

var target = regexp.MustCompile(`(?m)^\.target sm_(\d+)`)

// Of returns a function that names the source of each line of a module, counted from 1: "attention.cu:214".
// It is empty for generated kernels. Instructions put into the place of a kernel have the line of that place.
func Of(module string) func(line int) string {
	sources := sync.OnceValue(func() map[int]string { return sourcesOf(module) })
	return func(line int) string { return sources()[line] }
}

func sourcesOf(module string) map[int]string {
	sources := map[int]string{}
	sm := 0
	if m := target.FindStringSubmatch(module); m != nil {
		_, _ = fmt.Sscan(m[1], &sm) // the expression lets digits through alone
	}
	made := libraries[sm]
	if made == nil {
		return sources
	}
	all, err := made()
	if err != nil {
		panic(err) // the tables are part of the program
	}
	texts := strings.Split(module, "\n")
	for _, e := range entries(texts) {
		k := all[e.name]
		if at := strings.LastIndexByte(e.name, '_'); k == nil && at >= 0 {
			k = all[e.name[:at]] // with the hash of what was put into its places
		}
		if k != nil {
			k.align(texts[e.first:e.end], func(i int, source string) { sources[e.first+i+1] = source })
		}
	}
	return sources
}

// near is how many lines may be missing from a copy at a time, in which a test planted a bug.
const near = 4

// align finds the lines of a kernel in a copy of it, in which declarations precede them, and blocks stand in
// its places.
func (k *kernel) align(texts []string, found func(i int, source string)) {
	at := 0
	for i := 0; i < len(texts) && at < len(k.body); i++ {
		switch {
		case slices.Contains(k.body[at:min(at+near, len(k.body))], texts[i]):
			at += slices.Index(k.body[at:], texts[i])
			found(i, k.source(at))
			at++
		case texts[i] == "\t{" && strings.HasPrefix(strings.TrimSpace(k.body[at]), "//@"):
			source := k.source(at)
			at++
			for depth := 0; i < len(texts); i++ {
				found(i, source)
				if texts[i] == "\t{" {
					depth++
				} else if texts[i] == "\t}" {
					if depth--; depth == 0 {
						break
					}
				}
			}
		}
	}
}
