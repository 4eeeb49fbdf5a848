package data

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"iter"
	"path/filepath"
	"unicode/utf8"
)

// WithHeldOut returns the documents of train, and after them those of held, all of which
// are held out.
func WithHeldOut(train, held Source) Source { return withHeldOut{train, held} }

type withHeldOut struct{ train, held Source }

func (w withHeldOut) Fingerprint() (string, error) {
	a, err := w.train.Fingerprint()
	if err != nil {
		return "", err
	}
	b, err := w.held.Fingerprint()
	sum := sha256.Sum256(fmt.Appendf(nil, "%q held out %q", a, b))
	return hex.EncodeToString(sum[:]), err
}

func (w withHeldOut) Documents() iter.Seq2[Document, error] {
	return func(yield func(Document, error) bool) {
		for d, err := range w.train.Documents() {
			if !yield(d, err) || err != nil {
				return
			}
		}
		for d, err := range w.held.Documents() {
			d.HeldOut = true
			if !yield(d, err) || err != nil {
				return
			}
		}
	}
}

// EndsHeldOut returns src with the last share of each document's text held out, as a
// separate document.
func EndsHeldOut(src Source, share float64) Source { return endsHeldOut{src, share} }

type endsHeldOut struct {
	Source
	share float64
}

func (e endsHeldOut) Fingerprint() (string, error) {
	print, err := e.Source.Fingerprint()
	return fmt.Sprintf("%s last %v held out", print, e.share), err
}

func (e endsHeldOut) Documents() iter.Seq2[Document, error] {
	return func(yield func(Document, error) bool) {
		for d, err := range e.Source.Documents() {
			if err == nil && d.Text == nil && d.Tokens != nil {
				err = fmt.Errorf("data: %s is tokenized already: data.split_by end cuts texts", d.ID)
			}
			if err != nil {
				yield(d, err)
				return
			}
			begin, end := d, d
			at := int(float64(len(d.Text)) * (1 - e.share))
			for at > 0 && at < len(d.Text) && !utf8.RuneStart(d.Text[at]) {
				at--
			}
			// Each belongs to its receiver, who may append to it.
			begin.Text, end.Text = d.Text[:at:at], d.Text[at:]
			end.HeldOut, end.Repaired = true, 0
			if !yield(begin, nil) || !yield(end, nil) {
				return
			}
		}
	}
}

// Shared returns a file that is in both, empty if there is none.
func (f *Files) Shared(g *Files) string {
	seen := make(map[string]bool, len(f.paths))
	for _, p := range f.paths {
		seen[place(p)] = true
	}
	for _, p := range g.paths {
		if seen[place(p)] {
			return p
		}
	}
	return ""
}

// place identifies where a file is, whatever its name.
func place(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	return path
}
