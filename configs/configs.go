// Package configs contains the presets: configurations that ship with snug.
package configs

import "embed"

// FS has one NAME.yaml for each preset.
//
//go:embed *.yaml
var FS embed.FS
