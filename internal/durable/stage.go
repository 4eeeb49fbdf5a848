package durable

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Stage makes a folder beside dir, in which what is to appear as dir is built
// and then renamed. The parent is made if it is not there, and what killed
// processes of this host left in it, for whatever folder, is removed.
func Stage(dir string) (string, error) {
	parent, base := filepath.Dir(dir), filepath.Base(dir)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", err
	}
	sweep(parent)
	tmp, err := os.MkdirTemp(parent, fmt.Sprintf(".%s%s%d-*", base, stageMark(), os.Getpid()))
	if err != nil {
		return "", err
	}
	return tmp, os.Chmod(tmp, 0o755)
}

// Scratch makes a folder among the system's temporary ones, for this user alone,
// which the caller removes. What processes of this host left there that were
// killed is removed.
func Scratch(name string) (string, error) {
	sweep(os.TempDir())
	return os.MkdirTemp("", fmt.Sprintf(".%s%s%d-*", name, stageMark(), os.Getpid()))
}

// stageMark stands in the name of every such folder, between what it will be
// and the process that builds it.
func stageMark() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return ".snug-" + strings.ReplaceAll(host, string(filepath.Separator), "_") + "-"
}

// sweep removes what dead processes of this host left. It may fail: the
// remains take space and do no other harm.
func sweep(parent string) {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return
	}
	for _, e := range entries {
		_, rest, ok := strings.Cut(e.Name(), stageMark())
		var pid int
		if !ok || !e.IsDir() || !strings.HasPrefix(e.Name(), ".") {
			continue
		}
		if _, err := fmt.Sscanf(rest, "%d-", &pid); err == nil && !alive(pid) {
			_ = os.RemoveAll(filepath.Join(parent, e.Name()))
		}
	}
}
