package inference

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snug-ml/snug/data"
	"github.com/snug-ml/snug/internal/durable"
	"github.com/snug-ml/snug/internal/regular"
)

// renamed is a record whose text is in another field than the predictor requires, or that
// came from standard input.
type renamed struct {
	Input
	ask, field string
	spooled    string // the file that standard input was copied to
}

// Where implements Input.
func (r renamed) Where() string { return r.stdin(r.Input.Where()) }

// stdin names standard input instead of the file that it was copied to.
func (r renamed) stdin(text string) string {
	if r.spooled == "" {
		return text
	}
	return strings.ReplaceAll(text, r.spooled, "stdin")
}

// named returns an error that names standard input instead of the file that it was copied to.
func (r renamed) named(err error) error {
	if err == nil || r.spooled == "" {
		return err
	}
	return &spooledError{err, r.stdin(err.Error())}
}

// spooledError is an error about standard input.
type spooledError struct {
	err  error
	text string
}

func (e *spooledError) Error() string { return e.text }
func (e *spooledError) Unwrap() error { return e.err }

// Text implements Input.
func (r renamed) Text(field string) (string, error) {
	if field == r.ask {
		field = r.field
	}
	text, err := r.Input.Text(field)
	return text, r.named(err)
}

// line is a line of standard input as an input with one field.
type line struct {
	text, field string
	number      int
}

// Text implements Input.
func (l line) Text(field string) (string, error) {
	if field != l.field {
		return "", fmt.Errorf("%s: lines of text have no field %q; --stdin-format jsonl reads fields", l.Where(), field)
	}
	return l.text, nil
}

// Where implements Input.
func (l line) Where() string { return fmt.Sprintf("stdin:%d", l.number) }

// whole is a file or folder as an input with one field, its path.
type whole struct{ path, field string }

// Text implements Input.
func (w whole) Text(field string) (string, error) {
	if field != w.field {
		return "", fmt.Errorf("%s: is an input as a whole, without a field %q; a .jsonl or .csv file can list such inputs, with fields", w.path, field)
	}
	return w.path, nil
}

// Where implements Input.
func (w whole) Where() string { return w.path }

// Sources are where inputs come from.
type Sources struct {
	// Files are read or, if there are none, In: lines of text, or records in the format
	// named Format.
	Files  []string
	In     io.Reader
	Format string
	// Options are how records are read; Format is for files.
	Options data.Options
	// TextField is the field to use instead of the one that the predictor requires;
	// empty: that one.
	TextField string

	found []string // Files, or the inputs found there, once they are open
}

// Reads reports whether a path leads to one of the open files, by whatever name.
func (p *Sources) Reads(path string) bool {
	to, err := os.Stat(path)
	return err == nil && slices.ContainsFunc(p.found, func(name string) bool {
		from, err := os.Stat(name)
		return err == nil && os.SameFile(from, to)
	})
}

// Open finds the files and returns the stream of inputs for a predictor.
func (p *Sources) Open(ctx context.Context, k Predictor) (iter.Seq2[Input, error], error) {
	field := k.TextField()
	x := renamed{ask: field, field: cmp.Or(p.TextField, field)}
	if err := p.find(k); err != nil {
		return nil, err
	}
	switch {
	case len(p.found) > 0:
		return func(yield func(Input, error) bool) {
			for _, path := range p.found {
				if err := ctx.Err(); !yield(whole{path, field}, err) || err != nil {
					return
				}
			}
		}, nil
	case len(p.Files) > 0:
		f, err := data.OpenFiles(p.Files, p.Options)
		if err != nil {
			return nil, err
		}
		p.found = f.Paths()
		return func(yield func(Input, error) bool) { x.records(ctx, f, yield) }, nil
	case p.Format == "" || p.Format == "lines":
		return func(yield func(Input, error) bool) { p.lines(ctx, field, yield) }, nil
	}
	return func(yield func(Input, error) bool) {
		path, remove, err := spool(p.In)
		if err != nil {
			yield(nil, err)
			return
		}
		defer remove()
		x, opt := x, p.Options
		x.spooled, opt.Format = path, p.Format
		f, err := data.OpenFiles([]string{path}, opt)
		if err != nil {
			yield(nil, x.named(err))
			return
		}
		x.records(ctx, f, yield)
	}, nil
}

// find finds the files that are inputs as a whole.
func (p *Sources) find(k Predictor) error {
	finder, ok := k.(Finder)
	if !ok {
		return nil
	}
	records := ""
	for _, pattern := range p.Files {
		found, err := finder.Find(pattern)
		if err != nil {
			return err
		}
		if len(found) == 0 {
			records = pattern
		}
		p.found = append(p.found, found...)
	}
	switch {
	case len(p.found) == 0:
	case records != "":
		return fmt.Errorf("%s is an input as a whole, and %s would be read as a list of inputs: name only one kind", p.found[0], records)
	case p.TextField != "" || p.Options.NoHeader || p.Options.Format != "":
		return fmt.Errorf("%s is an input as a whole: --text-field, --no-header and --data.format are for files with records; omit them", p.found[0])
	}
	return nil
}

// records streams the records of files, with the field renamed.
func (r renamed) records(ctx context.Context, f *data.Files, yield func(Input, error) bool) {
	for in, err := range f.Records() {
		if err == nil {
			err = ctx.Err()
		}
		r.Input = in
		if !yield(r, r.named(err)) || err != nil {
			return
		}
	}
}

// lines streams the lines of standard input.
func (p *Sources) lines(ctx context.Context, field string, yield func(Input, error) bool) {
	n := 0
	for text, err := range data.Lines("stdin", p.In, p.Options.MaxRecord) {
		n++
		x := line{field: field, number: n}
		if err == nil {
			text, _, err = data.ValidUTF8(x.Where(), text, p.Options.ReplaceInvalid)
		}
		if err = cmp.Or(ctx.Err(), err); err != nil {
			yield(nil, err)
			return
		}
		x.text = string(text)
		if !yield(x, nil) {
			return
		}
	}
}

// spool copies standard input to a file, for readers that need one.
func spool(in io.Reader) (path string, remove func(), err error) {
	dir, err := durable.Scratch("stdin")
	if err != nil {
		return "", nil, err
	}
	remove = func() { _ = os.RemoveAll(dir) } // if this fails, the next process that spools tries again
	f, err := regular.Create(filepath.Join(dir, "stdin"))
	if err == nil {
		_, err = io.Copy(f, in)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		remove()
		return "", nil, err
	}
	return f.Name(), remove, nil
}
