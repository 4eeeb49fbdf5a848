package data

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// jsonlRecords yields one record a line; blank lines are skipped. It returns
// false when emit asked to stop.
func jsonlRecords(name string, opt Options, emit func(Record) bool) (bool, error) {
	in, err := openInput(name)
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
		if rec.fields, err = decodeObject(line, rec.Where(), opt); err != nil {
			return false, err
		}
		if !emit(rec) {
			return false, nil
		}
	}
}

// decodeObject splits a JSON object in its fields; their values are decoded
// when asked for. The decoder of the standard library would replace invalid
// UTF-8 without a word, so that is checked first.
func decodeObject(raw []byte, where string, opt Options) (map[string]any, error) {
	doc := Document{ID: where, Text: raw}
	if err := checkUTF8(&doc, opt.ReplaceInvalid); err != nil {
		return nil, err
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(doc.Text, &object); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return nil, fmt.Errorf("data: %s: byte %d of the record: %w", where, syntax.Offset, err)
		}
		return nil, fmt.Errorf("data: %s: want a JSON object: %w", where, err)
	}
	if object == nil {
		return nil, fmt.Errorf("data: %s: want a JSON object, found null", where)
	}
	fields := make(map[string]any, len(object))
	for k, v := range object {
		fields[k] = v
	}
	return fields, nil
}
