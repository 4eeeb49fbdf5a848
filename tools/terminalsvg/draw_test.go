package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

// A screen becomes well-formed XML that says its text, draws every dot of a Braille
// character and every bar, and has no escape sequence left.
func TestDraw(t *testing.T) {
	raw := draw("\x1b[1mrun <1>\x1b[m  \x1b[32mdone\x1b[m\n\x1b[90m[\x1b[m\x1b[36m██▒\x1b[m│\x1b[35m⣿⠁\x1b[m é", 20)
	d := xml.NewDecoder(bytes.NewReader(raw))
	var texts []string
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v:\n%s", err, raw)
		}
		if s, ok := token.(xml.CharData); ok && strings.TrimSpace(string(s)) != "" {
			texts = append(texts, string(s))
		}
	}
	if got := strings.Join(texts, "|"); got != "run <1>|done|[|é" {
		t.Errorf("%q", got)
	}
	if n := bytes.Count(raw, []byte("h0")); n != 9 {
		t.Errorf("%d dots, want the 8 and the 1 of two characters", n)
	}
	if n := bytes.Count(raw, []byte("z")); n < 4 || bytes.ContainsRune(raw, '\x1b') {
		t.Errorf("%d bars:\n%s", n, raw)
	}
	for _, want := range []string{`font-weight="700"`, `fill="#4fd39a" xml:space="preserve">done`, `x="76" y="42"`} {
		if !bytes.Contains(raw, []byte(want)) {
			t.Errorf("no %s in\n%s", want, raw)
		}
	}
}
