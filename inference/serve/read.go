package serve

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/snug-ml/snug/internal/strictjson"
)

// Body reads the JSON of a request of at most limit bytes. Requiring the JSON
// content type keeps out forms that other sites submit from a browser.
func Body(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		return nil, Problemf(http.StatusUnsupportedMediaType, "want Content-Type: application/json")
	}
	if charset := params["charset"]; charset != "" && !strings.EqualFold(charset, "utf-8") {
		return nil, Problemf(http.StatusUnsupportedMediaType, "want Content-Type: application/json in UTF-8, got charset=%s", charset)
	}
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, Problemf(http.StatusRequestEntityTooLarge, "the request is longer than %d bytes", limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, Problemf(http.StatusRequestTimeout, "the request did not arrive in time: only %d bytes of its body did; send it again, all at once", len(raw))
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, Problemf(http.StatusBadRequest, "the request is cut: its body ended after %d bytes; send as many as Content-Length says", len(raw))
	}
	if err == nil {
		err = wholeText(raw)
	}
	if err != nil {
		return nil, notExpected(err)
	}
	return raw, nil
}

// Decode reads a JSON object, refusing fields that into lacks, a field given twice and
// anything after the object.
func Decode(raw []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	err := d.Decode(into)
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("there is more text after the object")
		}
	}
	if err == nil {
		err = strictjson.Repeated(raw)
	}
	if err == nil {
		err = known(raw, into)
	}
	if err != nil {
		return notExpected(err)
	}
	return nil
}

// known refuses fields of an object that are not into's, a struct, letter for letter: the
// standard library ignores their case.
func known(raw []byte, into any) error {
	t := reflect.TypeOf(into).Elem()
	if t.Kind() != reflect.Struct {
		return nil
	}
	var names []string
	for f := range t.Fields() {
		names = append(names, f.Tag.Get("json"))
	}
	var given map[string]json.RawMessage
	if err := json.Unmarshal(raw, &given); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if !slices.Contains(names, name) {
			return fmt.Errorf("unknown field %.60q: want %s", name, strings.Join(names, ", "))
		}
	}
	return nil
}

func notExpected(err error) error {
	if wrong := new(json.UnmarshalTypeError); errors.As(err, &wrong) { // leaves out the names of Go's types
		at := ""
		if wrong.Field != "" {
			at = wrong.Field + ": "
		}
		err = fmt.Errorf("%sa JSON %s is the wrong type", at, wrong.Value)
	}
	return Problemf(http.StatusBadRequest, "not the expected JSON: %v", err)
}

// surrogates matches escaped surrogates: lone ones, and pairs, which are valid.
var surrogates = regexp.MustCompile(`\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[dD][89a-fA-F][0-9a-fA-F]{2}`)

// wholeText refuses text that the standard library's decoder would silently replace by
// U+FFFD: the answer would be for a different text.
func wholeText(raw []byte) error {
	if !utf8.Valid(raw) {
		at := 0
		for at < len(raw) {
			r, n := utf8.DecodeRune(raw[at:])
			if r == utf8.RuneError && n == 1 {
				break
			}
			at += n
		}
		return fmt.Errorf("invalid UTF-8 at byte %d (0x%02x)", at, raw[at])
	}
	for _, m := range surrogates.FindAllIndex(raw, -1) {
		if m[1]-m[0] == len(`\ud800`) {
			return fmt.Errorf("incomplete character at byte %d: %s", m[0], raw[m[0]:m[1]])
		}
	}
	return nil
}
