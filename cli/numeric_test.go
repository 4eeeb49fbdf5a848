package cli

import (
	"bytes"
	"encoding/json"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/engine/pass"
	"github.com/snug-ml/snug/session"
)

// hostile lists numbers that no counting key accepts.
var hostile = []string{
	"-1e300", "2147483647.5", "4611686018427387904", "1e18", "1e999", "NaN", "-Inf",
}

// TestEveryNumberIsBounded: every number of every system has an upper bound or is a real parameter. Hostile
// ones are rejected with the name of the key and what it expects. The keys come from the schema, so that a
// new one cannot be forgotten.
func TestEveryNumberIsBounded(t *testing.T) {
	presets := map[string]string{
		"refocused": "quickstart", "moderation": "moderation-quickstart", "agiformer": "agiformer-quickstart",
		"dynamo": "dynamo-quickstart", "cloudbase": "cloudbase-quickstart", "finetune": "finetune",
	}
	for _, s := range session.Systems {
		raw, err := config.JSONSchema(s.Config)
		if err != nil {
			t.Fatal(err)
		}
		var root keySchema
		if err := json.Unmarshal(raw, &root); err != nil {
			t.Fatal(err)
		}
		keys := root.numbers("")
		if len(keys) < 40 {
			t.Errorf("%s has only %d numbers", s.Config.Name, len(keys))
		}
		for key, k := range keys {
			if strings.HasPrefix(key, "tasks.") && !strings.HasPrefix(key, "tasks.qa.") {
				continue // all tasks have the same keys
			}
			seed := strings.HasSuffix(key, "seed")
			if k.Type == "integer" && k.Maximum == nil && !seed {
				t.Errorf("%s: %s has no upper bound", s.Config.Name, key)
			}
			values := hostile
			if k.Maximum != nil && k.Type == "integer" {
				values = append([]string{strconv.FormatFloat(*k.Maximum+1, 'f', -1, 64)}, hostile...)
			}
			if k.Type == "number" {
				values = []string{"1e300", "-1e300", "1e-300", "NaN", "Inf"}
			}
			for _, v := range values {
				if seed && v == "4611686018427387904" {
					continue // any number is a valid seed
				}
				var stderr bytes.Buffer
				code := Main([]string{"config", presets[s.Config.Name], "--" + key + "=" + v}, strings.NewReader(""), &bytes.Buffer{}, &stderr)
				if want := regexp.MustCompile(regexp.QuoteMeta(key) + `(\[0\])?: want `); code != exitUsage || !want.MatchString(stderr.String()) {
					t.Errorf("%s: %s %s: code %d, %q", s.Config.Name, key, v, code, stderr.String())
				}
			}
		}
	}
}

// keySchema is the part of a JSON schema that the test reads.
type keySchema struct {
	Type       any
	Maximum    *float64
	Properties map[string]*keySchema
	Items      *keySchema
}

// numbers returns the keys below path that take numbers or lists of numbers.
func (k *keySchema) numbers(path string) map[string]*keySchema {
	found := map[string]*keySchema{}
	for name, sub := range k.Properties {
		at := strings.TrimPrefix(path+"."+name, ".")
		if sub.Items != nil {
			sub = sub.Items
		}
		if sub.Type == "integer" || sub.Type == "number" {
			found[at] = sub
		}
		for n, s := range sub.numbers(at) {
			found[n] = s
		}
	}
	return found
}

// TestEveryNumericFlagIsBounded: every numeric flag of every command declares what it counts or is a real
// parameter.
func TestEveryNumericFlagIsBounded(t *testing.T) {
	parser, err := kong.New(&commands{}, kong.Name("snug"), kong.Vars{"passes": strings.Join(pass.Names(), ", ")})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, leaf := range parser.Model.Leaves(false) {
		for _, f := range leaf.Flags {
			x := f.Target.Type()
			for x.Kind() == reflect.Pointer {
				x = x.Elem()
			}
			whole := x == reflect.TypeFor[time.Duration]() || x.Kind() == reflect.Int || x.Kind() == reflect.Int64
			if whole {
				n++
			}
			if whole && (!f.Tag.Has(tagOf) || !f.Tag.Has("min") && !f.Tag.Has("above")) {
				t.Errorf("%s --%s has no bounds", typed(leaf), f.Name)
			}
		}
	}
	if n < 12 {
		t.Errorf("only %d numeric flags were found", n)
	}
}
