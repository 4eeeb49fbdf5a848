package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/snug-ml/snug/dist/mpi"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/cuda/fakegpu"
	"github.com/snug-ml/snug/session"
)

// ownCache runs the tests with their own cache folder.
type ownCache struct{ *testing.M }

func (m ownCache) Run() int {
	dir, err := os.MkdirTemp("", "snug-test")
	if err == nil {
		err = os.Setenv("XDG_CACHE_HOME", dir)
	}
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	replayElsewhere = replayHere // the test's own process has the cards
	session.ReuseRates()
	return m.M.Run()
}

func TestMain(m *testing.M) {
	testscript.Main(ownCache{m}, map[string]func(){
		"snug": func() {
			fakeCards()
			hurry()
			session.ReuseRates()
			mpi.Exit(Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
		},
		"snug-peak": snugPeak,
		"makedata":  makeData, "makeexamples": makeExamples, "makegallery": makeGallery,
	})
}

// fakeCards gives this process as many cards as SNUG_TEST_CARDS says, with interpreted kernels.
func fakeCards() {
	n, err := strconv.Atoi(os.Getenv("SNUG_TEST_CARDS"))
	if err != nil {
		return
	}
	d := &fakegpu.Driver{Mapped: true}
	for i := range n {
		card := fakegpu.T4
		card.UUID = fmt.Sprint("GPU-", i)
		d.Installed = append(d.Installed, card)
	}
	if kernel, nth, ok := strings.Cut(os.Getenv("SNUG_TEST_FAULT"), ":"); ok { // separately for each process
		left, err := strconv.Atoi(nth)
		if err != nil {
			panic(err)
		}
		d.Break = func(name string) driver.Code {
			if name == kernel {
				left--
			}
			if left == 0 {
				return driver.IllegalAddress
			}
			return 0
		}
	}
	// CALL:NTH or CALL:NTH:RANK: the card is lost in the NTH call of the driver.
	if lost := strings.Split(os.Getenv("SNUG_TEST_LOST"), ":"); len(lost) > 1 && (len(lost) == 2 || lost[2] == os.Getenv("SNUG_RANK")) {
		nth, err := strconv.Atoi(lost[1])
		if err != nil {
			panic(err)
		}
		d.Fail = once(lost[0], nth, driver.ECCUncorrectable)
	}
	backend.UseDriver(d)
}

// hurry makes the processes of a run wait less for one that hangs.
func hurry() {
	if d, err := time.ParseDuration(os.Getenv("SNUG_TEST_SILENCE")); err == nil {
		silence = d
	}
}

// TestScripts runs the scripts below testdata, which use the tool as a user would. Each starts in its own
// folder with a small corpus, corpus/*.txt, and a configuration, tiny.yaml, that trains on it in about a
// second.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			env.Setenv("TERM", "dumb")
			env.Setenv("XDG_CACHE_HOME", os.Getenv("XDG_CACHE_HOME"))
			notebook, err := filepath.Abs("../notebooks/colab.sh")
			if err != nil {
				return err
			}
			env.Setenv("NOTEBOOK", notebook)
			env.Setenv("SNUG_PYTHON", os.Getenv("SNUG_PYTHON"))
			nccl, err := filepath.Abs("../dist/nccl/testdata/nccl.c") // stands in for NCCL
			if err != nil {
				return err
			}
			env.Setenv("NCCL", nccl)
			return tiny(env.WorkDir)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"serve-hub": serveHub, "damage": damage, "torch-save": torchSave,
			"serve-mlflow": serveMLflow, "show-mlflow": showMLflow,
		},
		Condition: func(name string) (bool, error) {
			if name == "torch" { // a variable names a Python that has it
				return os.Getenv("SNUG_PYTHON") != "", nil
			}
			return false, fmt.Errorf("no condition %q", name)
		},
		RequireExplicitExec: true,
	})
}

const tinyConfig = `system: refocused
model: {d_model: 32, n_layers: 2, n_heads: 2, d_ff: 64, max_seq_len: 32, dropout: 0.1}
training:
  batch_size: 4
  gradient_accumulation_steps: 2
  max_steps: 12
  learning_rate: 3e-3
  warmup_steps: 2
  log_steps: 1
  eval_steps: 5
  save_steps: 4
  sample: {tokens: 8}
data:
  source: [corpus/*.txt]
  held_out_fraction: 0.2
  tokenizer: {vocab_size: 300}
`

// tiny writes the corpus and the configuration.
func tiny(dir string) error {
	if err := os.MkdirAll(filepath.Join(dir, "corpus"), 0o777); err != nil {
		return err
	}
	words := strings.Fields("the a quick slow brown red fox dog cat bird jumps runs sleeps over under near lazy happy tree river")
	n := uint32(1)
	for f := range 12 {
		var b strings.Builder
		for range 150 {
			n = n*1664525 + 1013904223
			fmt.Fprintf(&b, "%s ", words[n>>16%uint32(len(words))])
		}
		if err := os.WriteFile(filepath.Join(dir, "corpus", fmt.Sprintf("%02d.txt", f)), []byte(b.String()), 0o666); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, "tiny.yaml"), []byte(tinyConfig), 0o666)
}
