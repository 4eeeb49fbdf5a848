package cli

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/snug-ml/snug/engine/plan"
)

// With --json, stdout holds one JSON document: the verb's, or that of the
// refusal. Everything else goes to stderr.

// speak decides where the verb's output goes.
func (a *app) speak(asJSON bool) {
	if a.asJSON = asJSON; asJSON {
		a.out = a.err
	}
}

// json prints v as the document of the verb.
func (a *app) json(v any) error {
	if a.written {
		return fmt.Errorf("stdout already has its JSON document")
	}
	raw, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	a.written = true
	_, err = a.stdout.Write(append(raw, '\n'))
	return err
}

// refusal is the document of a verb that failed before it had one.
type refusal struct {
	Error    string           `json:"error"`
	ExitCode int              `json:"exit_code"`
	Plan     *plan.DoesNotFit `json:"plan,omitempty"` // of what does not fit
}

// refuse prints the refusal if JSON was requested and nothing was printed.
func (a *app) refuse(err error, code int) {
	if !a.asJSON || a.written {
		return
	}
	r := refusal{Error: err.Error(), ExitCode: code}
	errors.As(err, &r.Plan)
	if a.json(r) != nil && !a.written { // a plan with a figure that JSON cannot hold
		r.Plan = nil
		_ = a.json(r) // where stdout is gone the exit code shows it
	}
}
