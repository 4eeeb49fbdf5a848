// Release builds the files of a release, from the checkout that it is run in:
//
//	go run ./tools/release --out release
//
// For each system an archive with the program, LICENSE, NOTICE, README.md and the
// licences of its parts; for Linux on x86-64 one more that is static and has no CUDA;
// SHA256SUMS; and for each program its bill of materials, in CycloneDX 1.6. The same
// commit and compiler give the same bytes. The folder appears whole or not at all.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/snug-ml/snug/internal/durable"
	"github.com/snug-ml/snug/internal/tool"
)

type options struct {
	Out   string `help:"Folder that is made." default:"release" type:"path"`
	Dirty bool   `help:"Build although the checkout differs from its commit, to try the tool; the programs' version says so."`
}

// target is a platform to build for.
type target struct {
	os, arch, tags string
	static         bool // needs no loader of the system
}

func (t target) name() string {
	name := "snug-" + t.os + "-" + t.arch
	if t.tags != "" {
		name += "-" + t.tags
	}
	return name
}

var targets = []target{
	{os: "linux", arch: "amd64"},
	{os: "linux", arch: "amd64", tags: "nocuda", static: true},
	{os: "linux", arch: "arm64"},
	{os: "darwin", arch: "arm64"},
}

// program is the name of the program in an archive, sums that of the file of checksums.
const (
	program = "snug"
	sums    = "SHA256SUMS"
)

func main() {
	var o options
	tool.Main(&o, "release", "Builds the programs, checksums and bills of materials of a release.", o.run)
}

func (o *options) run(ctx context.Context) error {
	err := o.make(ctx)
	if ctx.Err() != nil {
		return errors.New("interrupted; nothing was made")
	}
	return err
}

func (o *options) make(ctx context.Context) (err error) {
	if err := vacant(o.Out); err != nil {
		return err
	}
	from, err := checkedOut(ctx)
	if err != nil {
		return err
	}
	if from.changes != "" && !o.Dirty {
		return fmt.Errorf("%s differs from its commit: commit or remove this, or try with --dirty:\n%s", from.root, from.changes)
	}
	// All programs are built before anything else is written: what lies in the checkout counts as a change of it.
	work, err := durable.Scratch("release")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	for _, t := range targets {
		fmt.Println(t.name())
		dir := filepath.Join(work, t.name())
		err := t.build(ctx, from, dir, o.Dirty)
		if err == nil {
			err = writeNotices(ctx, filepath.Join(dir, notices), filepath.Join(dir, program), from)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", t.name(), err)
		}
	}
	tmp, err := durable.Stage(o.Out)
	if err != nil {
		return err
	}
	if err = fill(tmp, work, from); err == nil {
		err = durable.Place(tmp, o.Out)
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(tmp))
	}
	fmt.Println(o.Out)
	return nil
}

// vacant refuses a folder that holds something.
func vacant(dir string) error {
	list, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("--out: %w", err)
	case len(list) > 0:
		return fmt.Errorf("--out %s: there is %s in it: remove it, or name a new folder", dir, list[0].Name())
	}
	return nil
}

// fill writes the files of a release, whose programs lie in work, to dir.
func fill(dir, work string, from checkout) error {
	var files []string
	for _, t := range targets {
		made := filepath.Join(work, t.name(), program)
		archive, bill := filepath.Join(dir, t.name()+".tar.gz"), filepath.Join(dir, t.name()+".cdx.json")
		content := []string{made, filepath.Join(work, t.name(), notices)}
		for _, name := range []string{"LICENSE", "NOTICE", "README.md"} {
			content = append(content, filepath.Join(from.root, name))
		}
		if err := writeArchive(archive, from.at, content...); err != nil {
			return err
		}
		if err := writeBill(bill, made, from.at); err != nil {
			return err
		}
		files = append(files, archive, bill)
	}
	return writeSums(filepath.Join(dir, sums), files)
}
