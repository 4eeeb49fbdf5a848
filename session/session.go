// Package session opens runs. From a configuration it makes a plan, a program on
// a device, data with the weights that training starts from, and a run directory;
// what happens then is one stream of events.
//
// It promises that whatever is done with a configuration (training, evaluation,
// measuring, checking) runs what training runs: the same shapes, the same
// precision, the same weights at the start.
//
// [Train] is all that another program needs; the command line is one file a verb
// over this package.
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

// Systems are what snug trains.
var Systems = []system.System{refocused.System, finetune.System, dynamo.System, moderation.System, agiformer.System, cloudbase.System}

// DefaultPreset is what a newcomer gets.
const DefaultPreset = "quickstart"

// Configs are the configurations of all systems.
func Configs() []config.System {
	var known []config.System
	for _, s := range Systems {
		known = append(known, s.Config)
	}
	return known
}

// SystemOf is the system that a configuration is for.
func SystemOf(c *config.Config) system.System {
	return Systems[slices.IndexFunc(Systems, func(x system.System) bool { return x.Config.Name == c.System })]
}

// UsageError is a mistake in the request.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }

// Unwrap is what is wrong.
func (e UsageError) Unwrap() error { return e.Err }

// ExitCode is 2: wrong usage.
func (UsageError) ExitCode() int { return 2 }

func usage(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// Version is the module version that this binary was built from.
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return "unknown"
}
