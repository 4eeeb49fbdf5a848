package cli

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// listed lists the files below a folder with their sizes and times.
func listed(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			fmt.Fprintln(&b, path, info.Size(), info.ModTime())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestPreparedIsWhatTheRunUses: a run uses exactly the prepared data, in every system. With the flags that
// `data prepare` recommends, it prepares nothing more, neither there nor in its own folder.
func TestPreparedIsWhatTheRunUses(t *testing.T) {
	for name, r := range everySystem(t) {
		if name == "finetune" {
			continue // it tokenizes at the start, so there is nothing to prepare
		}
		t.Run(name, func(t *testing.T) {
			out := t.TempDir()
			prepared, run := filepath.Join(out, "prepared"), filepath.Join(out, "run")
			printed := done(t, "data", "prepare", "--config", r.config, "--out", prepared, "--training.seed", "7").out
			_, next, ok := strings.Cut(printed, "Next:\n  snug ")
			if !ok {
				t.Fatalf("no command to go on with:\n%s", printed)
			}
			if name == "agiformer" && strings.Contains(printed, "training a byte-level BPE") {
				t.Errorf("a tokenizer is trained that a model of bytes does not read:\n%s", printed)
			}
			before := listed(t, prepared)
			if before == "" {
				t.Fatal("nothing was prepared")
			}
			args := strings.Fields(next)
			if !strings.Contains(next, "--training.seed 7 --data.cache_dir "+prepared) {
				t.Errorf("the command lacks what was given: %s", next)
			}
			trained := done(t, append(args, "--out", run)...).out
			if after := listed(t, prepared); after != before {
				t.Errorf("the run prepared again:\n%s\nbefore\n%s", after, before)
			}
			if _, err := os.Stat(filepath.Join(run, "data")); err == nil {
				t.Errorf("the run has prepared data of its own")
			}
			for _, again := range []string{"tokenized into", "training a byte-level BPE"} {
				if strings.Contains(trained, again) {
					t.Errorf("the run says %q:\n%s", again, trained)
				}
			}
		})
	}
}

// TestNothingToPrepare: a system with nothing to prepare reports that and creates nothing.
func TestNothingToPrepare(t *testing.T) {
	r, out := everySystem(t)["moderation"], t.TempDir()
	done(t, "data", "prepare", "--config", r.config, "--out", filepath.Join(out, "prepared"))
	found, err := filepath.Glob(filepath.Join(out, "prepared", "tokenizer-*", "tokenizer.json"))
	if err != nil || len(found) != 1 {
		t.Fatalf("tokenizers: %v, %v", found, err)
	}
	none := filepath.Join(out, "none")
	said := done(t, "data", "prepare", "--config", r.config, "--out", none, "--data.tokenizer.path", found[0]).out
	if !strings.Contains(said, "nothing to prepare: moderation reads this data as is") || strings.Contains(said, "cache_dir") {
		t.Errorf("it says\n%s", said)
	}
	if _, err := os.Stat(none); err == nil {
		t.Error("a folder was made")
	}
}
