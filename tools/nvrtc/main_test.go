package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/snug-ml/snug/engine/conformance"
	"github.com/snug-ml/snug/engine/cuda/fakegpu"
	"github.com/snug-ml/snug/engine/cuda/kernels"
)

const folder = "../../engine/cuda/kernels"

// The change to the sources still applies.
func TestSources(t *testing.T) {
	headers, families, err := sources(folder)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(families, "gemm") || !strings.Contains(headers[changed], instead) || strings.Contains(headers[changed], sharedAddress) {
		t.Errorf("%v\n%s", families, headers[changed])
	}
}

func TestSome(t *testing.T) {
	all := conformance.Cases()
	picked := map[string]int{}
	for _, c := range some(all, 2, nil) {
		picked[operation(c)]++
	}
	for _, c := range all {
		if picked[operation(c)] == 0 {
			t.Fatalf("no case of %s", operation(c))
		}
	}
	if picked["matmul"] != 2 || picked["attention"] < 20 {
		t.Errorf("%d matmuls and %d attentions", picked["matmul"], picked["attention"])
	}
	if n := len(some(all, 0, nil)); n != len(all) {
		t.Errorf("%d of %d cases", n, len(all))
	}
}

// planted is the embedded set with a bug in a family.
func planted(t *testing.T, in, bug, instead string) *kernels.Set {
	t.Helper()
	dir := t.TempDir()
	for _, target := range kernels.Targets {
		to := filepath.Join(dir, "ptx", fmt.Sprintf("sm_%d", target))
		if err := os.MkdirAll(to, 0o755); err != nil {
			t.Fatal(err)
		}
		_, families, err := sources(folder)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			text, err := kernels.Embedded.Family(target, f)
			if err != nil {
				t.Fatal(err)
			}
			if f == in {
				if !strings.Contains(text, bug) {
					t.Fatalf("%s has no %s", in, bug)
				}
				text = strings.ReplaceAll(text, bug, instead)
			}
			if err := write(filepath.Join(to, f+".ptx.gz"), text); err != nil {
				t.Fatal(err)
			}
		}
	}
	return kernels.New(os.DirFS(dir))
}

// Kernels that do the same have the same bits; one that is wrong is found, and families that did not run are named.
func TestCompare(t *testing.T) {
	set := planted(t, "reduce", "add.rn.f32", "sub.rn.f32")
	cases := some(conformance.Cases(), 2, []string{"embedding", "sum", "max_reduce"})
	found, ran, err := compare(t.Context(), fakegpu.A10, set, cases)
	if err == nil || !strings.Contains(err.Error(), "sum/") || strings.Contains(err.Error(), "embedding") || strings.Contains(err.Error(), "max_reduce") {
		t.Errorf("wrong sums: %v", err)
	}
	for _, name := range []string{"embedding", "max_reduce"} {
		if r := found[name]; r == nil || r.cases != 2 || r.same != 2 {
			t.Errorf("%s: %+v", name, r)
		}
	}
	o := &options{Kernels: folder}
	if err := o.missing(fakegpu.A10, kernels.Embedded, ran); err == nil || !strings.Contains(err.Error(), "gemm") || strings.Contains(err.Error(), "embedding") || strings.Contains(err.Error(), "reduce") {
		t.Errorf("families that did not run: %v", err)
	}
}

// With the libraries in SNUG_NVRTC, as .ci/run does with more cases.
func TestNVRTC(t *testing.T) {
	if os.Getenv("SNUG_NVRTC") == "" {
		t.Skip("no NVRTC: name some in SNUG_NVRTC")
	}
	o := &options{Kernels: folder, Cases: 1, Operations: []string{"softmax", "matmul", "embedding"}}
	if err := o.run(t.Context()); err != nil {
		t.Error(err)
	}
}
