package data

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// jsonRecords yields the objects of a JSON file: the elements of an array, of the array
// under Options.ArrayKey of an object, or, if there is neither, objects one after
// another. It reads one object at a time and returns false when emit asked to stop.
func jsonRecords(name string, opt Options, emit func(Record) bool) (bool, error) {
	in, err := openInput(name)
	if err != nil {
		return false, err
	}
	defer func() { _ = in.Close() }() // read only: nothing to lose
	first, err := firstByte(in)
	if err != nil {
		return false, fmt.Errorf("data: %s: no JSON value: %w", name, err)
	}
	limit := newRecordLimit(in, opt.MaxRecord)
	j := &jsonReader{name: name, opt: opt, limit: limit, dec: json.NewDecoder(limit), emit: emit}
	switch {
	case first == '[':
		return j.array()
	case first == '{' && opt.ArrayKey != "":
		return j.object()
	default:
		return j.sequence()
	}
}

// firstByte peeks at the first byte that is not white space.
func firstByte(in *input) (byte, error) {
	for {
		b, err := in.ReadByte()
		if err != nil {
			return 0, err
		}
		if b != ' ' && b != '\t' && b != '\r' && b != '\n' {
			return b, in.UnreadByte()
		}
	}
}

type jsonReader struct {
	name  string
	opt   Options
	limit *recordLimit
	dec   *json.Decoder
	emit  func(Record) bool
	row   int64
}

// fail adds where decoding stopped.
func (j *jsonReader) fail(err error) error {
	if errors.Is(err, errTooLong) {
		return fmt.Errorf("data: %s: value after record %d is longer than %d bytes; name the array of records with data.array_key, or raise data.max_record", j.name, j.row, j.opt.MaxRecord)
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("data: %s: after record %d, near byte %d: %w", j.name, j.row, j.dec.InputOffset(), err)
}

// one reads a record and reports whether emit wants more.
func (j *jsonReader) one() (bool, error) {
	j.limit.next()
	var raw json.RawMessage
	if err := j.dec.Decode(&raw); err != nil {
		return false, err
	}
	j.row++
	rec := Record{File: j.name, Row: j.row}
	if err := rec.decode(raw, j.opt); err != nil {
		return false, err
	}
	return j.emit(rec), nil
}

// array reads [record, ...] and, at the end of the file, nothing more.
func (j *jsonReader) array() (bool, error) {
	more, err := j.elements()
	if err != nil || !more {
		return false, err
	}
	return true, j.end()
}

func (j *jsonReader) elements() (bool, error) {
	j.limit.next()
	token, err := j.dec.Token()
	if err != nil {
		return false, j.fail(err)
	}
	if token != json.Delim('[') {
		return false, j.fail(fmt.Errorf("want an array of records, found %v", token))
	}
	for j.dec.More() {
		more, err := j.one()
		if err != nil {
			return false, j.located(err)
		}
		if !more {
			return false, nil
		}
	}
	if _, err := j.dec.Token(); err != nil { // the closing bracket
		return false, j.fail(err)
	}
	return true, nil
}

// located adds the place to errors that do not already name the file.
func (j *jsonReader) located(err error) error {
	var bad *recordError
	if errors.As(err, &bad) {
		return err
	}
	return j.fail(err)
}

// object reads {..., ArrayKey: [record, ...], ...}.
func (j *jsonReader) object() (bool, error) {
	if _, err := j.dec.Token(); err != nil { // the opening brace
		return false, j.fail(err)
	}
	found := false
	for j.dec.More() {
		j.limit.next()
		key, err := j.dec.Token()
		if err != nil {
			return false, j.fail(err)
		}
		if key == j.opt.ArrayKey {
			found = true
			if more, err := j.elements(); err != nil || !more {
				return false, err
			}
			continue
		}
		var skip json.RawMessage
		if err := j.dec.Decode(&skip); err != nil {
			return false, j.fail(err)
		}
	}
	if _, err := j.dec.Token(); err != nil { // the closing brace
		return false, j.fail(err)
	}
	if !found {
		return false, fmt.Errorf("data: %s: the object has no key %q (data.array_key)", j.name, j.opt.ArrayKey)
	}
	return true, j.end()
}

// sequence reads record record ...
func (j *jsonReader) sequence() (bool, error) {
	for {
		more, err := j.one()
		if err == io.EOF {
			return true, nil
		}
		if err != nil {
			return false, j.located(err)
		}
		if !more {
			return false, nil
		}
	}
}

func (j *jsonReader) end() error {
	token, err := j.dec.Token()
	switch {
	case err == io.EOF:
		return nil
	case err != nil:
		return j.fail(fmt.Errorf("want the end of the file: %w", err))
	}
	return j.fail(fmt.Errorf("want the end of the file, found %v", token))
}
