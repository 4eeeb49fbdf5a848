package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// module makes a checkout of a program that is as small as can be, in a folder whose name has spaces, and enters it.
func module(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"git", "go"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("%s is not installed", name)
		}
	}
	root := filepath.Join(t.TempDir(), "a folder with spaces")
	if err := os.Mkdir(root, 0o777); err != nil {
		t.Fatal(err)
	}
	t.Chdir(root)
	for name, text := range map[string]string{
		"go.mod": "module example.org/snug\n\ngo 1.26\n", "main.go": "package main\n\nfunc main() { println(`works`) }\n",
		"LICENSE": "a licence", "NOTICE": "a notice", "README.md": "read me", ".gitignore": "/release/\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, line := range []string{
		"init --quiet", "add .", "-c user.name=somebody -c user.email=somebody@example.org commit --quiet --message first",
	} {
		if out, err := exec.Command("git", strings.Fields(line)...).CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v\n%s", line, err, out)
		}
	}
	return root
}

// contents are the files of a folder.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, e := range list {
		raw, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		out[e.Name()] = string(raw)
	}
	return out
}

// The same commit gives the same bytes wherever they are put and whatever the environment says; a checkout that
// differs from its commit gives none, and a folder that exists is left alone.
func TestWholeRelease(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles for four systems")
	}
	root := module(t)
	make := func(out string, dirty bool) error {
		o := options{Out: filepath.Join(root, out), Dirty: dirty}
		return o.run(t.Context())
	}
	if err := make("release", false); err != nil {
		t.Fatal(err)
	}
	first := contents(t, "release")
	if len(first) != 2*len(targets)+1 {
		t.Errorf("a release has %d files", len(first))
	}
	for _, line := range strings.Split(strings.TrimSpace(first[sums]), "\n") {
		if _, name, _ := strings.Cut(line, "  "); first[name] == "" {
			t.Errorf("%q names no file", line)
		}
	}
	if err := make("release", false); err == nil || !strings.Contains(err.Error(), "there is "+sums) {
		t.Errorf("into a folder that holds a release: %v", err)
	}
	t.Setenv("GOAMD64", "v3")
	t.Setenv("GOFLAGS", "-tags=other")
	if err := make("../elsewhere", false); err != nil {
		t.Fatal(err)
	}
	for name, text := range contents(t, "../elsewhere") {
		if first[name] != text {
			t.Errorf("%s differs the second time", name)
		}
	}
	if err := os.WriteFile("main.go", []byte("package main\n\nfunc main() { println(`changed`) }\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := make("again", false); err == nil || !strings.Contains(err.Error(), "M main.go") {
		t.Errorf("a changed file: %v", err)
	}
	if err := os.WriteFile("main.go", []byte("package main\n\nfunc main() { println(`broken` }\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := make("again", true); err == nil || !strings.Contains(err.Error(), "snug-linux-amd64: go build") {
		t.Errorf("what does not compile: %v", err)
	}
	left, err := filepath.Glob("*again*")
	if err != nil || len(left) > 0 {
		t.Errorf("%v, %v: left by releases that failed", left, err)
	}
}

// A folder that is no checkout is refused with what is wanted.
func TestNoCheckout(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	t.Chdir(t.TempDir())
	t.Setenv("GIT_CEILING_DIRECTORIES", filepath.Dir(t.TempDir()))
	o := options{Out: filepath.Join(t.TempDir(), "release")}
	if err := o.run(t.Context()); err == nil || !strings.Contains(err.Error(), "git checkout") {
		t.Errorf("%v", err)
	}
}
