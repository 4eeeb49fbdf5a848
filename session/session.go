// Package session opens runs. From a configuration it makes a plan, a program on a device, data with the
// weights that training starts from, and a run directory. What happens then is reported as one stream of
// events.
//
// Whatever is done with a configuration (training, evaluation, measuring, checking) runs what training runs:
// the same shapes, the same precision, the same initial weights.
//
// Other programs need only [Train]. The command line adds one file per command on top of this package.
package session

import (
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/system"
	"github.com/snug-ml/snug/system/agiformer"
	"github.com/snug-ml/snug/system/cloudbase"
	"github.com/snug-ml/snug/system/dynamo"
	"github.com/snug-ml/snug/system/finetune"
	"github.com/snug-ml/snug/system/moderation"
	"github.com/snug-ml/snug/system/refocused"
)

// Systems lists what snug trains.
var Systems = []system.System{refocused.System, finetune.System, dynamo.System, moderation.System, agiformer.System, cloudbase.System}

// DefaultPreset is the preset for newcomers.
const DefaultPreset = "quickstart"

// Configs returns the configurations of all systems.
func Configs() []config.System {
	var known []config.System
	for _, s := range Systems {
		known = append(known, s.Config)
	}
	return known
}

// SystemOf returns the system that a configuration is for.
func SystemOf(c *config.Config) system.System {
	return Systems[slices.IndexFunc(Systems, func(x system.System) bool { return x.Config.Name == c.System })]
}

// UsageError is a mistake in the request.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong.
func (e UsageError) Unwrap() error { return e.Err }

// ExitCode is 2: wrong usage.
func (UsageError) ExitCode() int { return 2 }

func usage(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// Version returns the module version that this binary was built from.
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return "unknown"
}
