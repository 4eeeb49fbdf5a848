package cli

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/session"
)

// tree returns the hash of every file below dir, except for locks, which each process takes again.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.Name() == ".lock" {
			return err
		}
		if e.IsDir() {
			files[path] = "folder"
			return nil
		}
		raw, err := os.ReadFile(path)
		files[path] = fmt.Sprintf("%x", sha256.Sum256(raw))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// others returns values of a key that differ from the present one; some may be invalid. help is its line in
// the reference, with choices in parentheses.
func others(text, help string) []string {
	var list []string
	if m := regexp.MustCompile(`\(([a-z0-9_, ]+)\)$`).FindStringSubmatch(help); m != nil {
		list = append(list, strings.Split(m[1], ", ")...)
	}
	if m := regexp.MustCompile(`each one of ([a-z_, ]+)\)$`).FindStringSubmatch(help); m != nil {
		for _, one := range strings.Split(m[1], ", ") {
			list = append(list, "["+one+"]")
		}
	}
	switch x, err := strconv.ParseFloat(text, 64); {
	case text == "true":
		list = append(list, "false")
	case text == "false":
		list = append(list, "true")
	case err == nil && x == float64(int64(x)):
		list = append(list, fmt.Sprint(int64(x)+1), fmt.Sprint(2*int64(x)), fmt.Sprint(int64(x)-1), fmt.Sprint(x/2), "0.25")
	case err == nil:
		list = append(list, fmt.Sprint(x/2), fmt.Sprint(x*2))
	case strings.HasSuffix(text, "s"):
		list = append(list, "31s")
	}
	list = append(list, "[0.5]", "[corpus/0*.txt]", "words", "64MiB")
	return slices.DeleteFunc(list, func(s string) bool { return s == text })
}

// reference returns the help of every key of a system.
func reference(t *testing.T, system string) map[string]string {
	t.Helper()
	text := done(t, "config", "--reference", system).out
	help, key := map[string]string{}, ""
	for line := range strings.Lines(text) {
		switch f := strings.Fields(line); {
		case strings.HasPrefix(line, "  --"):
			key = strings.TrimPrefix(f[0], "--")
		case key != "" && strings.HasPrefix(line, "        "):
			help[key] = strings.TrimSpace(help[key] + " " + strings.TrimSpace(line))
		}
	}
	return help
}

// TestResumeWithEveryKeyChanged changes every key when a run is resumed. The change either works or is
// rejected by name with both values. A rejection leaves every byte of the run unchanged, so that it can still
// be resumed as it is.
func TestResumeWithEveryKeyChanged(t *testing.T) {
	if testing.Short() {
		t.Skip("a run for each of 80 keys")
	}
	t.Chdir(t.TempDir())
	if err := tiny("."); err != nil {
		t.Fatal(err)
	}
	begin := []string{"train", "--config", "tiny.yaml", "--out", "run", "--hardware.threads", "1", "--training.max_steps", "3",
		"--training.eval_steps", "1", "--training.eval_batches", "1", "--training.sample.tokens", "0"}
	if s := snug(t, "", append(begin, "--until", "2")...); s.code != exitStopped {
		t.Fatal(s)
	}
	before := tree(t, "run")
	load := func(extra ...config.Override) *config.Config {
		c, err := config.Load(config.Sources{Systems: session.Configs(), File: "run/config.yaml", Overrides: extra})
		if err != nil {
			return nil
		}
		return c
	}
	help := reference(t, "refocused")
	tried, refused := 0, 0
	for _, v := range load().Values() {
		if v.Key == "system" || v.Key == "run.out" {
			continue
		}
		text, found := "", false
		for _, x := range others(v.Text, help[v.Key]) {
			if c := load(config.Override{Key: v.Key, Text: x}); c != nil {
				i := slices.IndexFunc(c.Values(), func(y config.Value) bool { return y.Key == v.Key })
				if text = c.Values()[i].Text; text != v.Text {
					found = true
					break
				}
			}
		}
		if !found {
			t.Logf("%s: no other value than %s found", v.Key, v.Text)
			continue
		}
		tried++
		t.Run(v.Key, func(t *testing.T) {
			if err := os.CopyFS("copy", os.DirFS("run")); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := os.RemoveAll("copy"); err != nil {
					t.Error(err)
				}
			}()
			s := snug(t, "", "train", "--resume", "--out", "copy", "--"+v.Key, text)
			if s.code == exitDone {
				return
			}
			refused++
			if want := fmt.Sprintf("%s is %s, the run has %s", v.Key, text, v.Text); s.code != exitUsage || !strings.Contains(s.err, want) {
				// If the machine or the budget forbids a value, the refusal names the key.
				if !strings.Contains(s.err, v.Key) {
					t.Errorf("%s %s, was %s: exit code %d\n%s", v.Key, text, v.Text, s.code, s.err)
				}
			}
			after := tree(t, "copy")
			for path := range after {
				if after[path] != before["run"+strings.TrimPrefix(path, "copy")] {
					t.Errorf("%s was changed or made", path)
				}
			}
			if len(after) != len(before) {
				t.Errorf("%d files and folders, before there were %d: %v", len(after), len(before), slices.Sorted(maps.Keys(after)))
			}
		})
	}
	if tried < 60 || refused < 20 {
		t.Errorf("%d keys tried, %d refused", tried, refused)
	}
	done(t, "train", "--resume", "--out", "run")
}
