package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/snug-ml/snug/device"
)

// versionFlag is the flag --version.
type versionFlag bool

// BeforeReset implements kong's hook; it ends parsing.
func (versionFlag) BeforeReset(a *app, k *kong.Kong) error {
	c := device.DetectHost().CPU
	if a.asJSON {
		k.Exit(exitDone)
		return a.json(map[string]string{"version": build(), "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH, "kernels": fmt.Sprint(c.ISA)})
	}
	a.printf("snug %s\nbuilt by %s for %s/%s; kernels here: %s\n", build(), runtime.Version(), runtime.GOOS, runtime.GOARCH, c.ISA)
	k.Exit(exitDone)
	return nil
}

// build returns the version of this binary and the revision that it was built from.
func build() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	var parts []string
	if r := settings["vcs.revision"]; r != "" {
		parts = append(parts, fmt.Sprintf("revision %.12s of %s", r, settings["vcs.time"]))
	}
	if settings["vcs.modified"] == "true" {
		parts = append(parts, "with changes")
	}
	if len(parts) == 0 {
		return info.Main.Version
	}
	return info.Main.Version + " (" + strings.Join(parts, ", ") + ")"
}
