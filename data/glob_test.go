package data

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What a run writes is not what it learns from, whatever leads to it.
func TestRunsAreNotData(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	write("texts/a.jsonl", `{"text": "a"}`)
	write("texts/data/b.jsonl", `{"text": "b"}`)
	write("texts/.lock", "of another program")
	write("texts/run/.lock", `{"pid": 7, "host": "h", "since": "s", "run": "0123456789abcdef"}`)
	write("texts/run/metrics.jsonl", "{}")
	write("texts/run/checkpoints/step-00000001/state.json", "{}")
	write("texts/begins/.lock", `{"pid": 7, "host": "h", "since": "s"}`)
	write("texts/begins/metrics.jsonl", "{}")
	write("texts/cache/shard.jsonl", "{}")
	for link, to := range map[string]string{"metrics.jsonl": "run/metrics.jsonl", "state.jsonl": "run/checkpoints/step-00000001/state.json", "data.jsonl": "data/b.jsonl"} {
		if err := os.Symlink(filepath.Join(dir, "texts", to), filepath.Join(dir, "texts", link)); err != nil {
			t.Skip(err)
		}
	}
	at := func(name string) string { return filepath.Join(dir, "texts", name) }
	for _, pattern := range []string{at(""), at("**/*.json*"), at("**")} {
		f, err := OpenFiles([]string{pattern}, Options{}, at("cache"))
		if err != nil {
			t.Fatalf("%s: %v", pattern, err)
		}
		if want := []string{at("a.jsonl"), at("data.jsonl"), at("data/b.jsonl")}; !slices.Equal(f.paths, want) {
			t.Errorf("%s is the files %v, want %v", pattern, f.paths, want)
		}
		if want := []string{at("begins"), at("cache"), at("metrics.jsonl"), at("run"), at("state.jsonl")}; !slices.Equal(f.left, want) {
			t.Errorf("%s leaves out %v, want %v", pattern, f.left, want)
		}
		said := ""
		f.TellLeft(func(format string, _ ...any) { said = format })
		if !strings.Contains(said, "leaving out") {
			t.Errorf("%s: nothing is said of what is left out", pattern)
		}
	}
	for _, pattern := range []string{at("run"), at("run/*.jsonl"), at("run/checkpoints"), at("run/checkpoints/**/*.json"), at("run/checkpoints/step-*"), at("begins/*")} {
		if _, err := Glob(pattern); err == nil || !strings.Contains(err.Error(), "what a run writes there is no data") {
			t.Errorf("%s: got %v, want a refusal", pattern, err)
		}
	}
	for _, pattern := range []string{at("data"), at("data/*.jsonl")} {
		if _, err := OpenFiles([]string{pattern}, Options{}, at("run/../data")); err == nil || !strings.Contains(err.Error(), "data is also the folder for prepared data") {
			t.Errorf("%s: got %v, want a refusal", pattern, err)
		}
	}
	if got, err := Glob(at("run/metrics.jsonl")); err != nil || len(got) != 1 {
		t.Errorf("a file that is named by itself: %v, %v", got, err)
	}
}

// A folder that is named by a link is read like any other, under the name that was given. Links to folders
// below it are not followed, even if they lead back to it.
func TestLinkToFolder(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{"texts/a.txt": "a", "texts/sub/b.txt": "b", "run/.lock": `{"pid": 7}`, "run/checkpoints/state.txt": "s"} {
		if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"link": "texts", "twice": "link", "texts/back": "../texts", "run-link": "run", "checkpoints-link": "run/checkpoints"} {
		if err := os.Symlink(to, link); err != nil {
			t.Skip(err)
		}
	}
	for _, pattern := range []string{"link", "link/", "./link", "link/**/*.txt", "link/**", "twice"} {
		root, _, _ := strings.Cut(filepath.Clean(pattern), "/")
		want := []string{filepath.FromSlash(root + "/a.txt"), filepath.FromSlash(root + "/sub/b.txt")}
		if got, err := Glob(pattern); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s is %v, %v, want %v", pattern, got, err, want)
		}
	}
	for _, pattern := range []string{"run-link", "run-link/*", "checkpoints-link", "checkpoints-link/*.txt"} {
		if _, err := Glob(pattern); err == nil || !strings.Contains(err.Error(), "what a run writes there is no data") {
			t.Errorf("%s: got %v, want a refusal", pattern, err)
		}
	}
	if _, err := OpenFiles([]string{"link"}, Options{}, "texts"); err == nil || !strings.Contains(err.Error(), "link is also the folder for prepared data") {
		t.Errorf("a link to the folder for prepared data: got %v, want a refusal", err)
	}
}
