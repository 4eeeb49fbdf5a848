// Package kernels holds the kernels for NVIDIA cards as PTX, which build.sh compiles from the CUDA C++ in
// this folder.
package kernels

import (
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
)

//go:embed ptx
var files embed.FS

// Targets are the compute capabilities for which there are kernels, lowest first.
var Targets = []int{75, 80}

// Target is the best target for a card of the given capability; 0 if there is none.
func Target(capability int) (best int) {
	for _, t := range Targets {
		if t <= capability {
			best = t
		}
	}
	return best
}

// Set is what a compiler made of the sources.
type Set struct {
	files     fs.FS
	version   func() string
	libraries map[int]func() (map[string]kernel, error) // the kernels of each target by name
}

// New returns the kernels in files, which has the layout that build.sh writes: ptx/sm_75/gemm.ptx.gz.
func New(files fs.FS) *Set {
	s := &Set{files: files, libraries: map[int]func() (map[string]kernel, error){}}
	s.version = sync.OnceValue(s.hash)
	for _, target := range Targets {
		s.libraries[target] = sync.OnceValues(func() (map[string]kernel, error) { return s.library(target) })
	}
	return s
}

// Embedded are the kernels that are part of snug.
var Embedded = New(files)

var current = Embedded

// Use makes programs that are compiled from now on take their kernels from another set, and returns what
// undoes this. It is for comparing compilers, and must not be called while a program is being compiled.
func Use(s *Set) (undo func()) {
	old := current
	current = s
	return func() { current = old }
}

// Version distinguishes the kernels from those of other versions of snug.
func Version() string { return current.version() }

func (s *Set) hash() string {
	h := sha256.New()
	_ = fs.WalkDir(s.files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(s.files, path)
		_, _ = fmt.Fprintf(h, "%s %d\n%s", path, len(text), text)
		return err
	})
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// Family is the PTX of a source file, by its name without extension.
func Family(target int, name string) (string, error) { return current.Family(target, name) }

// Family is the PTX of a source file, by its name without extension.
func (s *Set) Family(target int, name string) (string, error) {
	packed, err := s.files.Open(fmt.Sprintf("ptx/sm_%d/%s.ptx.gz", target, name))
	if err != nil {
		return "", err
	}
	text, err := gzip.NewReader(packed)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	_, err = io.Copy(&out, text)
	return out.String(), errors.Join(err, packed.Close())
}

// kernel is a kernel within the text of its family.
type kernel struct {
	text string // from the parameters on, without what closes it
	// shared holds the declarations of its family's shared memory.
	shared *[]string
}

// Names lists the kernels of a target, sorted.
func Names(target int) ([]string, error) {
	all, err := current.libraries[target]()
	return slices.Sorted(maps.Keys(all)), err
}

// Kernel is the text of one kernel from its parameters on: what follows its name.
func Kernel(target int, name string) (string, error) {
	all, err := current.libraries[target]()
	if err != nil {
		return "", err
	}
	k, ok := all[name]
	if !ok {
		return "", fmt.Errorf("there is no kernel %s for sm_%d", name, target)
	}
	head, body, _ := strings.Cut(k.text, "\n{\n")
	return "(" + head + "\n{\n" + k.sharedBy(body) + body + "\n}\n\n", nil
}

// sharedBy returns the declarations of shared memory that a kernel has in common with others of its family
// and uses, for a copy of the kernel.
func (k kernel) sharedBy(body string) string {
	var own strings.Builder
	for _, line := range *k.shared {
		name := line[strings.LastIndexByte(line, ' ')+1:]
		name, _, _ = strings.Cut(strings.TrimSuffix(name, ";"), "[")
		if mentions(body, name) {
			own.WriteString("\t" + line + "\n")
		}
	}
	return own.String()
}

// mentions reports whether a name occurs in a text, other than as the start of a longer name.
func mentions(text, name string) bool {
	for {
		_, rest, found := strings.Cut(text, name)
		if !found {
			return false
		}
		if rest == "" || strings.IndexByte(",;]+ )\n", rest[0]) >= 0 {
			return true
		}
		text = rest
	}
}

func (s *Set) library(target int) (map[string]kernel, error) {
	list, err := fs.ReadDir(s.files, fmt.Sprintf("ptx/sm_%d", target))
	if err != nil {
		return nil, err
	}
	found := map[string]kernel{}
	for _, file := range list {
		text, err := s.Family(target, strings.TrimSuffix(file.Name(), ".ptx.gz"))
		if err != nil {
			return nil, err
		}
		shared := new([]string)
		// Kernels follow one another; shared memory is declared before and between them.
		for text != "" {
			between, rest, _ := strings.Cut(text, ".visible .entry ")
			for line := range strings.Lines(between) {
				if strings.HasPrefix(line, ".shared ") {
					*shared = append(*shared, strings.TrimSpace(line))
				}
			}
			if rest == "" {
				break
			}
			name, rest, _ := strings.Cut(rest, "(")
			var body string
			var ended bool
			if body, text, ended = strings.Cut(rest, "\n}\n"); !ended {
				return nil, fmt.Errorf("kernel %s of sm_%d has no end", name, target)
			}
			found[name] = kernel{body, shared}
		}
	}
	return found, nil
}
