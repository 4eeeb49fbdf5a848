package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"github.com/snug-ml/snug/internal/durable"
	"github.com/snug-ml/snug/internal/regular"
)

// program is what a run of the matrix computes, but for its seed.
type program struct {
	System    string `json:"system"`
	Precision string `json:"precision"`
	ISA       string `json:"isa"`
	// Format is that of weights and the optimizer's state; empty: as shipped.
	Format string `json:"format,omitempty"`
}

func (p program) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s %s", p.System, p.Precision, p.ISA, p.Format))
}

// cell is one run of the matrix.
type cell struct {
	program
	Seed uint64 `json:"seed"`
	// Bits is the hash of a short training: runs count for as long as it stays.
	Bits string `json:"bits"`
}

func (c cell) String() string {
	return fmt.Sprintf("%v seed %d", c.program, c.Seed)
}

// folder is the name of the cell's run directory.
func (c cell) folder() string { return strings.NewReplacer(" ", "-", ",", "").Replace(c.String()) }

// result is the result of a cell.
type result struct {
	cell
	Date    string  `json:"date"`
	Device  string  `json:"device"`
	Threads int     `json:"threads"`
	Seconds float64 `json:"seconds"` // of the whole command
	// Failed is the end of the output of a run that failed.
	Failed string `json:"failed,omitempty"`
	// Figures and Baselines of the promises of its system, by name.
	Figures   map[string]float64 `json:"figures"`
	Baselines map[string]float64 `json:"baselines,omitempty"`
	// Curve is the held-out loss of each evaluation.
	Curve []point `json:"curve,omitempty"`
}

// point is the held-out loss after an update.
type point struct {
	Update float64 `json:"update"`
	Loss   float64 `json:"loss"`
}

// bitsOf is the hash of a short training of a program.
type bitsOf struct {
	program
	Bits string `json:"bits"`
	// Commit of the sources that were tried last.
	Commit string `json:"commit"`
}

// results is the results file.
type results struct {
	path string
	mu   sync.Mutex
	kept struct {
		Programs []bitsOf `json:"programs"`
		Runs     []result `json:"runs"`
	}
}

func readResults(path string) (*results, error) {
	r := &results{path: path}
	raw, err := regular.Read(path, 64<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, &r.kept)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// program is what is known of a program; nil: nothing.
func (r *results) program(p program) *bitsOf {
	for i := range r.kept.Programs {
		if r.kept.Programs[i].program == p {
			return &r.kept.Programs[i]
		}
	}
	return nil
}

// has reports whether a cell was run; again leaves out what failed.
func (r *results) has(c cell, again bool) bool {
	return slices.ContainsFunc(r.kept.Runs, func(x result) bool { return x.cell == c && !(again && x.Failed != "") })
}

// tried replaces what is known of a program, on the disk too.
func (r *results) tried(b bitsOf) error {
	r.kept.Programs = append(slices.DeleteFunc(r.kept.Programs, func(y bitsOf) bool { return y.program == b.program }), b)
	return r.save()
}

// add replaces an earlier result of the same cell, on the disk too.
func (r *results) add(x result) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kept.Runs = append(slices.DeleteFunc(r.kept.Runs, func(y result) bool { return y.cell == x.cell }), x)
	return r.save()
}

func (r *results) save() error {
	raw, err := json.MarshalIndent(r.kept, "", " ")
	if err != nil {
		return err
	}
	return durable.Replace(r.path, append(raw, '\n'))
}

// figure follows the keys of path, joined by dots, into a JSON document.
func figure(raw []byte, path string) (float64, error) {
	var at any
	if err := json.Unmarshal(raw, &at); err != nil {
		return 0, err
	}
	for key := range strings.SplitSeq(path, ".") {
		m, _ := at.(map[string]any)
		next, ok := m[key]
		if !ok {
			return 0, fmt.Errorf("no %s (of %s)", key, path)
		}
		at = next
	}
	x, ok := at.(float64)
	if !ok {
		return 0, fmt.Errorf("%s is %v, not a finite number", path, at)
	}
	return x, nil
}
