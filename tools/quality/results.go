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

// cell is one run of the matrix.
type cell struct {
	// Commit is the last one that changed what a run computes.
	Commit    string `json:"commit"`
	System    string `json:"system"`
	Seed      uint64 `json:"seed"`
	Precision string `json:"precision"`
	ISA       string `json:"isa"`
	// Format is that of weights and the optimizer's state; empty: as shipped.
	Format string `json:"format,omitempty"`
}

func (c cell) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s seed %d %s %s %s", c.System, c.Seed, c.Precision, c.ISA, c.Format))
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
}

// results is the results file.
type results struct {
	path string
	mu   sync.Mutex
	list []result
}

func readResults(path string) (*results, error) {
	r := &results{path: path}
	raw, err := regular.Read(path, 64<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, &r.list)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// has reports whether a cell was run; again leaves out what failed.
func (r *results) has(c cell, again bool) bool {
	return slices.ContainsFunc(r.list, func(x result) bool { return x.cell == c && !(again && x.Failed != "") })
}

// of are the results of a commit.
func (r *results) of(commit string) (out []result) {
	for _, x := range r.list {
		if x.Commit == commit {
			out = append(out, x)
		}
	}
	return out
}

// add replaces an earlier result of the same cell, on the disk too.
func (r *results) add(x result) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(slices.DeleteFunc(r.list, func(y result) bool { return y.cell == x.cell }), x)
	raw, err := json.MarshalIndent(r.list, "", " ")
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
