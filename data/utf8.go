package data

import (
	"bytes"
	"fmt"
	"unicode/utf8"
)

// ValidUTF8 returns text as valid UTF-8 or an error that says where it is invalid; where
// names the text in the error. With replace set each invalid byte becomes U+FFFD and is
// counted.
func ValidUTF8(where string, text []byte, replace bool) (valid []byte, replaced int, err error) {
	doc := Document{ID: where, Text: text}
	err = checkUTF8(&doc, replace)
	return doc.Text, doc.Repaired, err
}

// checkUTF8 makes doc's text valid UTF-8 or returns an error that says where it is
// invalid. With replace set each invalid byte becomes U+FFFD and is counted.
func checkUTF8(doc *Document, replace bool) error {
	if utf8.Valid(doc.Text) {
		return nil
	}
	first, count := -1, 0
	for i := 0; i < len(doc.Text); {
		r, n := utf8.DecodeRune(doc.Text[i:])
		if r == utf8.RuneError && n <= 1 {
			if first < 0 {
				first = i
			}
			count++
		}
		i += max(n, 1)
	}
	if !replace {
		line := 1 + bytes.Count(doc.Text[:first], []byte("\n"))
		return fmt.Errorf("data: %s: invalid UTF-8 at byte %d of the document (line %d of it, byte 0x%02x; %d invalid bytes in all); convert the file to UTF-8, or set data.replace_invalid to put U+FFFD in their place",
			doc.ID, first, line, doc.Text[first], count)
	}
	out := make([]byte, 0, len(doc.Text)+2*count)
	for i := 0; i < len(doc.Text); {
		r, n := utf8.DecodeRune(doc.Text[i:])
		if r == utf8.RuneError && n <= 1 {
			out = append(out, "\uFFFD"...)
		} else {
			out = append(out, doc.Text[i:i+n]...)
		}
		i += max(n, 1)
	}
	doc.Text = out
	doc.Repaired += count
	return nil
}
