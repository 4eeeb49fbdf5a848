package ptxsim

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// assemblers are the available ptxas programs: those that SNUG_PTXAS lists, or the one in PATH.
var assemblers = sync.OnceValue(func() []string {
	if list := os.Getenv("SNUG_PTXAS"); list != "" {
		return filepath.SplitList(list)
	}
	if path, err := exec.LookPath("ptxas"); err == nil {
		return []string{path}
	}
	return nil
})

// corpus holds the texts that this run's tests have parsed.
var corpus = map[string]bool{}

// TestMain assembles every text that the tests parsed, at the end, if there is a ptxas.
func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 && !assembleCorpus() {
		code = 1
	}
	os.Exit(code)
}

func assembleCorpus() bool {
	if len(assemblers()) == 0 {
		return true
	}
	dir, err := os.MkdirTemp("", "ptxas")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	ok := true
	for _, program := range assemblers() {
		for text := range corpus {
			// Some instructions are newer than PTX 7.0 and sm_80, which the texts declare.
			newer := strings.Replace(strings.Replace(text, ".version 7.0", ".version 8.0", 1), ".target sm_80", ".target sm_90", 1)
			file := filepath.Join(dir, "t.ptx")
			if err := os.WriteFile(file, []byte(newer), 0o600); err != nil {
				panic(err)
			}
			if out, err := exec.Command(program, "-arch=sm_90", "-O0", file, "-o", os.DevNull).CombinedOutput(); err != nil {
				println(program, "refuses what the tests parse:", string(out), "\n", newer)
				ok = false
			}
		}
	}
	return ok
}

func TestAssembledAsCommitted(t *testing.T) {
	if len(assemblers()) == 0 {
		t.Skip("no ptxas: name some in SNUG_PTXAS")
	}
	for _, program := range assemblers() {
		for _, target := range targets {
			for _, arch := range slices.Compact([]string{target, "sm_86"}) {
				if out, err := exec.Command(program, "-arch="+arch, "-warn-spills", "-warn-lmem-usage", "-Werror", "testdata/kernels."+target+".ptx", "-o", os.DevNull).CombinedOutput(); err != nil {
					t.Errorf("%s: %s for %s: %s", program, target, arch, out)
				}
			}
		}
	}
}
