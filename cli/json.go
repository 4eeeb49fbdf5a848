package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/snug-ml/snug/engine/plan"
)

// With --json, stdout contains exactly one JSON document, either the command's or that of the refusal.
// Everything else goes to stderr.

// speak decides where the command's output goes.
func (a *app) speak(asJSON bool) {
	if a.asJSON = asJSON; asJSON {
		a.out = a.err
	} else {
		a.out = a.stdout
	}
}

// json makes v the document of the command. It is printed when the command ends, so that a later refusal can
// be added.
func (a *app) json(v any) error {
	if a.document != nil {
		return fmt.Errorf("stdout already has its JSON document")
	}
	raw, err := json.MarshalIndent(v, "", "  ")
	a.document = raw
	return err
}

// jsonNow prints v at once, as the document of a command that goes on.
func (a *app) jsonNow(v any) error { return errors.Join(a.json(v), a.publish()) }

// publish prints the document, if there is one that has not been printed.
func (a *app) publish() error {
	if a.document == nil || a.written {
		return nil
	}
	a.written = true
	_, err := a.stdout.Write(append(a.document, '\n'))
	return err
}

// refusal is the document of a command that failed before it had one.
type refusal struct {
	Error    string           `json:"error"`
	ExitCode int              `json:"exit_code"`
	Plan     *plan.DoesNotFit `json:"plan,omitempty"` // set if the plan does not fit
}

// refuse prints the refusal if JSON was requested: as a document of its own, or as the first fields of the
// command's document. Training that was stopped is not a refusal.
func (a *app) refuse(err error, code int) {
	if !a.asJSON || a.written {
		return
	}
	r := refusal{Error: abridged(err.Error()), ExitCode: code}
	switch {
	case a.document == nil:
		errors.As(err, &r.Plan)
		if a.json(r) != nil { // the plan contains a number that JSON cannot represent
			r.Plan, a.document = nil, nil
			_ = a.json(r) // cannot fail without the plan: text and a number
		}
	case code != exitStopped:
		if a.document, err = refused(a.document, r); err != nil {
			a.warnf("snug: %v\n", err)
		}
	}
	_ = a.publish() // if stdout is gone, the exit code shows it
}

// refused adds a refusal to the document of a command. A document that is not an object becomes the field
// "result" of one.
func refused(document []byte, r refusal) ([]byte, error) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(document, &fields) != nil || fields == nil {
		return json.MarshalIndent(struct {
			refusal
			Result json.RawMessage `json:"result"`
		}{r, document}, "", "  ")
	}
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil || len(fields) == 0 {
		return raw, err
	}
	for _, own := range []string{"error", "exit_code"} {
		if fields[own] != nil {
			return document, fmt.Errorf("the document has a field %q of its own", own)
		}
	}
	// Both are objects with the same indentation: {\n ... \n}.
	head, tail := bytes.TrimSuffix(raw, []byte("\n}")), bytes.TrimPrefix(document, []byte("{"))
	return slices.Concat(head, []byte(","), tail), nil
}
