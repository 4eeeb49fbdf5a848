package main

import (
	"context"
	"debug/buildinfo"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// checkout is what is built.
type checkout struct {
	root, revision string
	at             time.Time // of the commit, which everything in a release is dated
	changes        string    // what differs from the commit, as git prints it
}

// checkedOut is the checkout of the working directory.
func checkedOut(ctx context.Context) (c checkout, err error) {
	if c.root, err = git(ctx, "rev-parse", "--show-toplevel"); err != nil {
		return c, fmt.Errorf("%w\na release is built from a git checkout of snug, whose commit names and dates it", err)
	}
	head, err := git(ctx, "log", "-1", "--format=%H %ct")
	if err != nil {
		return c, err
	}
	revision, seconds, _ := strings.Cut(head, " ")
	at, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return c, fmt.Errorf("git log: %w", err)
	}
	c.revision, c.at = revision, time.Unix(at, 0).UTC()
	c.changes, err = git(ctx, "status", "--porcelain")
	return c, err
}

// git is what git prints.
func git(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", args...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%s", strings.TrimSpace(string(exit.Stderr)))
	}
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return strings.TrimRight(string(out), "\n"), nil
}

// settled are variables that change a program: each has the compiler's default, whatever is set here.
var settled = []string{"CGO_ENABLED=0", "GOFLAGS=", "GOEXPERIMENT=", "GOAMD64=v1", "GOARM64=v8.0", "GOFIPS140=off", "GOWORK=off"}

// build makes the program of a target in a new folder, and holds it to what a release promises.
func (t target) build(ctx context.Context, from checkout, dir string, dirty bool) error {
	if err := os.Mkdir(dir, 0o777); err != nil {
		return err
	}
	made := filepath.Join(dir, program)
	c := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=true", "-ldflags=-s -w", "-tags", t.tags, "-o", made, ".")
	c.Dir = from.root
	c.Env = append(append(os.Environ(), settled...), "GOOS="+t.os, "GOARCH="+t.arch)
	// Told to stop, it removes what it was making.
	c.Cancel, c.WaitDelay = func() error { return c.Process.Signal(syscall.SIGTERM) }, 10*time.Second
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	if err := ofCommit(made, from.revision, dirty); err != nil {
		return err
	}
	if t.static {
		return isStatic(made)
	}
	return nil
}

// ofCommit refuses a program that was built of something else than a commit: the checkout changed meanwhile.
func ofCommit(path, revision string, dirty bool) error {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return err
	}
	built := map[string]string{}
	for _, s := range info.Settings {
		built[s.Key] = s.Value
	}
	got := built["vcs.revision"]
	if got == "" {
		return errors.New("the compiler found no commit to name it by: it knows a clone, but not a worktree of one")
	}
	if got != revision {
		return fmt.Errorf("built of commit %q, want %s: the checkout changed while it was built", got, revision)
	}
	if built["vcs.modified"] != "false" && !dirty {
		return errors.New("the checkout changed while it was built: start again")
	}
	return nil
}

// isStatic refuses an ELF program that names a loader.
func isStatic(path string) (err error) {
	f, err := elf.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			return errors.New("not static: it names a loader")
		}
	}
	return nil
}
