package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/snug-ml/snug/internal/durable"
	"github.com/snug-ml/snug/internal/regular"
)

// notices is the file of an archive that holds what the licences of the parts want to be passed on.
const notices = "THIRD_PARTY_LICENSES"

// notice matches the files of a module that hold its licence.
var notice = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([.-].*)?$`)

// writeNotices writes the licences of what a program is made of, each as its authors ship it: of Go and of every module.
func writeNotices(ctx context.Context, path, program string, from checkout) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	root, err := golang(ctx, from, "env", "GOROOT")
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := licences(&out, "Go "+info.GoVersion, root); err != nil {
		return err
	}
	for _, m := range info.Deps {
		dir, err := golang(ctx, from, "list", "-m", "-f", "{{.Dir}}", m.Path)
		if err == nil {
			err = licences(&out, m.Path+" "+m.Version, dir)
		}
		if err != nil {
			return err
		}
	}
	return durable.Replace(path, out.Bytes())
}

// golang is what the go command prints.
func golang(ctx context.Context, from checkout, args ...string) (string, error) {
	c := exec.CommandContext(ctx, "go", args...)
	c.Dir, c.Env = from.root, append(os.Environ(), settled...)
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w", args[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}

// licences appends the licence files of a folder.
func licences(out *bytes.Buffer, name, dir string) error {
	list, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	found := false
	for _, e := range list {
		if !e.Type().IsRegular() || !notice.MatchString(e.Name()) {
			continue
		}
		text, err := regular.Read(filepath.Join(dir, e.Name()), regular.Text)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s, %s\n%s\n\n%s\n\n", name, e.Name(), strings.Repeat("=", 72), bytes.TrimSpace(text))
		found = true
	}
	if !found {
		return fmt.Errorf("%s: no licence in %s, and a release has to pass it on", name, dir)
	}
	return nil
}
