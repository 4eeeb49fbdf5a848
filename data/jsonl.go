package data

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/snug-ml/snug/internal/strictjson"
)

// jsonlRecords yields one record per line; blank lines are skipped. It returns false when
// emit asked to stop.
func jsonlRecords(name string, opt Options, emit func(Record) bool) (bool, error) {
	in, err := openLines(name)
	if err != nil {
		return false, err
	}
	defer func() { _ = in.Close() }() // read only: nothing to lose
	rec := Record{File: name}
	var buf []byte
	for {
		rec.Line++
		buf, err = appendLine(buf[:0], in.Reader, opt.MaxRecord)
		switch {
		case err == io.EOF:
			return true, nil
		case err == errTooLong:
			return false, fmt.Errorf("data: %s: line longer than %d bytes; is it JSONL? raise data.max_record if so", rec.Where(), opt.MaxRecord)
		case err != nil:
			return false, fmt.Errorf("data: %s: %w", rec.Where(), err)
		}
		line := bytes.TrimSpace(buf)
		if len(line) == 0 {
			continue
		}
		rec.Row++
		if err := rec.decode(line, opt); err != nil {
			return false, err
		}
		if !emit(rec) {
			return false, nil
		}
	}
}

// recordError is about the content of a record and names its place.
type recordError struct{ err error }

func (e *recordError) Error() string { return e.err.Error() }
func (e *recordError) Unwrap() error { return e.err }

// decode splits a JSON object into its fields; their values are decoded on demand.
// The decoder of the standard library would replace invalid UTF-8 silently, so that
// is checked first.
func (r *Record) decode(raw []byte, opt Options) error {
	doc := Document{ID: r.Where(), Text: raw}
	if err := checkUTF8(&doc, opt.ReplaceInvalid); err != nil {
		return &recordError{err}
	}
	var object map[string]json.RawMessage
	err := json.Unmarshal(doc.Text, &object)
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax):
		return &recordError{fmt.Errorf("data: %s: byte %d of the record: %w", r.Where(), syntax.Offset, err)}
	case err != nil:
		hint := ""
		if raw[0] == '[' {
			hint = "; use data.format json for a file that is one list"
		}
		return &recordError{fmt.Errorf("data: %s: %w%s", r.Where(), strictjson.Explain(err), hint)}
	case object == nil:
		return &recordError{fmt.Errorf("data: %s: want a JSON object, found null", r.Where())}
	}
	r.repaired = doc.Repaired
	r.fields = make(map[string]any, len(object))
	for k, v := range object {
		r.fields[k] = v
	}
	return nil
}
