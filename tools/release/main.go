// Release builds what a release consists of, from the tree that it is run in:
//
//	go run ./tools/release --out dist
//
// For each system an archive with the program, LICENSE and README.md; for Linux on
// x86-64 one more that is static and has no CUDA; SHA256SUMS; and for each program
// its bill of materials, in CycloneDX 1.6. The same tree and compiler give the same
// bytes.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/snug-ml/snug/internal/durable"
)

type options struct {
	Out string `help:"Folder that is made." default:"dist" type:"path"`
}

// target is a system that is built for.
type target struct{ os, arch, tags string }

func (t target) name() string {
	name := "snug-" + t.os + "-" + t.arch
	if t.tags != "" {
		name += "-" + t.tags
	}
	return name
}

var targets = []target{{"linux", "amd64", ""}, {"linux", "amd64", "nocuda"}, {"linux", "arm64", ""}, {"darwin", "arm64", ""}}

func main() {
	var o options
	kong.Parse(&o, kong.Description("Builds the programs, checksums and bills of materials of a release."))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := o.run(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "release: %v\n", err)
		os.Exit(1)
	}
}

func (o *options) run(ctx context.Context) error {
	if err := os.Mkdir(o.Out, 0o777); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	at, err := committed(ctx)
	if err != nil {
		return err
	}
	var files []string
	for _, t := range targets {
		fmt.Println(t.name())
		made, err := t.build(ctx, o.Out, at)
		if err != nil {
			return fmt.Errorf("%s: %w", t.name(), err)
		}
		files = append(files, made...)
	}
	return writeSums(filepath.Join(o.Out, "SHA256SUMS"), files)
}

// committed is when the tree was committed, which everything in a release is dated.
func committed(ctx context.Context) (time.Time, error) {
	out, err := exec.CommandContext(ctx, "git", "log", "-1", "--format=%ct").Output()
	if err != nil {
		return time.Time{}, fmt.Errorf("git log: %w", err)
	}
	seconds, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
	return time.Unix(seconds, 0).UTC(), err
}

// build makes the archive and the bill of materials of a target.
func (t target) build(ctx context.Context, dir string, at time.Time) (files []string, err error) {
	work, err := durable.Scratch("release")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	program := filepath.Join(work, "snug")
	c := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-tags", t.tags, "-o", program, ".")
	c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+t.os, "GOARCH="+t.arch)
	if out, err := c.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build: %w\n%s", err, out)
	}
	archive, bill := filepath.Join(dir, t.name()+".tar.gz"), filepath.Join(dir, t.name()+".cdx.json")
	if err := writeArchive(archive, at, program, "LICENSE", "README.md"); err != nil {
		return nil, err
	}
	return []string{archive, bill}, writeBill(bill, program, at)
}
