package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"net/url"
	"runtime/debug"
	"strings"
	"time"

	"github.com/snug-ml/snug/internal/durable"
	"github.com/snug-ml/snug/internal/regular"
)

// component is a part of a program, in CycloneDX 1.6
// (https://cyclonedx.org/docs/1.6/json/).
type component struct {
	Type    string `json:"type"`
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	PURL    string `json:"purl,omitempty"`
	Hashes  []hash `json:"hashes,omitempty"`
	// Licenses are those that the release itself knows: its own.
	Licenses []license `json:"licenses,omitempty"`
}

// license is named by an identifier of SPDX.
type license struct {
	License struct {
		ID string `json:"id"`
	} `json:"license"`
}

type hash struct {
	Alg     string `json:"alg"`
	Content string `json:"content"`
}

// writeBill writes the components of a Go program, from its own build information.
func writeBill(path, program string, at time.Time) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	content, err := regular.Read(program, maxFile)
	if err != nil {
		return err
	}
	parts := []component{{Type: "platform", Name: "go", Version: info.GoVersion, PURL: "pkg:generic/go@" + strings.TrimPrefix(info.GoVersion, "go")}}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		parts = append(parts, component{Type: "library", Name: m.Path, Version: m.Version, PURL: purl(m)})
	}
	var own license
	own.License.ID = "Apache-2.0"
	out, err := json.MarshalIndent(map[string]any{
		"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
		"metadata": map[string]any{
			"timestamp": at.Format(time.RFC3339),
			"component": component{
				Type: "application", Name: info.Main.Path, Version: info.Main.Version, PURL: purl(&info.Main),
				Hashes:   []hash{{"SHA-256", fmt.Sprintf("%x", sha256.Sum256(content))}},
				Licenses: []license{own},
			},
		},
		"components": parts,
	}, "", "  ")
	if err != nil {
		return err
	}
	return durable.Replace(path, append(out, '\n'))
}

// purl is the package URL of a module (https://github.com/package-url/purl-spec, type golang).
func purl(m *debug.Module) string {
	return "pkg:golang/" + strings.ToLower(m.Path) + "@" + url.QueryEscape(m.Version)
}
