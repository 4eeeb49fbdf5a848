// Package kernels holds the kernels of NVIDIA cards as PTX, which build.sh makes
// of the CUDA C++ next to it.
package kernels

import (
	"embed"
	"fmt"
	"path"
	"strings"
	"sync"
)

//go:embed ptx
var files embed.FS

// Targets are the compute capabilities that there is code for, the lowest first.
var Targets = []int{75, 80}

// Target is the best of them for a card of the given capability; 0 if there is
// none.
func Target(capability int) (best int) {
	for _, t := range Targets {
		if t <= capability {
			best = t
		}
	}
	return best
}

// Family is the text of a source file, by its name without extension.
func Family(target int, name string) (string, error) {
	text, err := files.ReadFile(fmt.Sprintf("ptx/sm_%d/%s.ptx", target, name))
	return string(text), err
}

// index gives the family of each kernel, by the target that has them all.
var index = sync.OnceValues(func() (map[string]string, error) {
	found := map[string]string{}
	dir := fmt.Sprintf("ptx/sm_%d", Targets[len(Targets)-1])
	list, err := files.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, f := range list {
		text, err := files.ReadFile(path.Join(dir, f.Name()))
		if err != nil {
			return nil, err
		}
		for _, line := range strings.Split(string(text), "\n") {
			if name, ok := strings.CutPrefix(line, ".visible .entry "); ok {
				found[strings.TrimSuffix(strings.TrimSpace(name), "(")] = strings.TrimSuffix(f.Name(), ".ptx")
			}
		}
	}
	return found, nil
})

// Find gives the family of a kernel.
func Find(kernel string) (family string, err error) {
	all, err := index()
	if err != nil {
		return "", err
	}
	family, ok := all[kernel]
	if !ok {
		return "", fmt.Errorf("there is no kernel %s", kernel)
	}
	return family, nil
}

// Kernel is the text of one kernel from its parameters on: what follows its name.
func Kernel(target int, name string) (string, error) {
	family, err := Find(name)
	if err != nil {
		return "", err
	}
	text, err := Family(target, family)
	if err != nil {
		return "", err
	}
	_, kernel, ok := strings.Cut(text, ".visible .entry "+name+"(")
	if !ok {
		return "", fmt.Errorf("kernel %s is not made for sm_%d", name, target)
	}
	kernel, _, ok = strings.Cut(kernel, "\n}\n")
	if !ok {
		return "", fmt.Errorf("kernel %s has no end", name)
	}
	head, body, _ := strings.Cut(kernel, "\n{\n")
	return "(" + head + "\n{\n" + sharedOf(text, body) + body + "\n}\n\n", nil
}

// sharedOf are the declarations of the shared memory that a kernel uses and has in
// common with others of its family, for a copy of its own.
func sharedOf(family, body string) string {
	var own strings.Builder
	for _, line := range strings.Split(family, "\n") {
		if !strings.HasPrefix(line, ".shared ") {
			continue
		}
		name := line[strings.LastIndexByte(line, ' ')+1:]
		if name, _, _ = strings.Cut(name, "["); strings.Contains(body, name) {
			own.WriteString("\t" + line + "\n")
		}
	}
	return own.String()
}
