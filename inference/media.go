package inference

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/snug-ml/snug/data/token"
	"github.com/snug-ml/snug/engine/graph"
)

// Media describes what may accompany a text for a multimodal model.
type Media struct {
	// Files is how many files each kind of media has. A text is accompanied by all kinds
	// or by none, as in training.
	Files map[string]int
	// Decode turns the files of a kind into the input of that name, as in training.
	Decode func(kind string, files []MediaFile) ([]float32, error)
	// Logits is Uncached's Logits for a text with media, whose inputs it declares.
	Logits func(b *graph.Builder, ids, last *graph.Value) *graph.Value
}

// MediaFile is a file with a name for messages.
type MediaFile struct {
	Name string
	io.ReadSeeker
}

// Seen is what accompanies a text: the inputs of a program by name.
type Seen map[string][]float32

// bytes is the memory that s takes.
func (s Seen) bytes() (n int64) {
	for _, x := range s {
		n += 4 * int64(len(x))
	}
	return n
}

// MediaError refuses what was sent along with a text.
type MediaError struct {
	Kind string
	Err  error
}

func (e *MediaError) Error() string { return e.Kind + ": " + e.Err.Error() }

// Unwrap returns the reason.
func (e *MediaError) Unwrap() error { return e.Err }

// Decode decodes what accompanies a text; nil if nothing does. The error is a
// *[MediaError].
func (l *Language) Decode(files map[string][]MediaFile) (Seen, error) {
	if len(files) == 0 {
		return nil, nil
	}
	kinds := slices.Sorted(maps.Keys(files))
	refuse := func(kind, format string, args ...any) (Seen, error) {
		return nil, &MediaError{kind, fmt.Errorf(format, args...)}
	}
	if l.Media == nil {
		return refuse(kinds[0], "the model reads text only: train one with model.use_multimodal (agiformer), or omit it")
	}
	reads := slices.Sorted(maps.Keys(l.Media.Files))
	for _, kind := range kinds {
		if l.Media.Files[kind] == 0 {
			return refuse(kind, "the model was trained without it (model.modalities): omit it; it reads %s", strings.Join(reads, ", "))
		}
	}
	seen := Seen{}
	for _, kind := range reads {
		want := l.Media.Files[kind]
		switch got := len(files[kind]); {
		case got == 0:
			return refuse(kind, "the model was trained with %s together: name this too, or none of them", strings.Join(reads, ", "))
		case got != want:
			return refuse(kind, "%d files, the model reads %d", got, want)
		}
		var err error
		if seen[kind], err = l.Media.Decode(kind, files[kind]); err != nil {
			return nil, &MediaError{kind, err}
		}
	}
	return seen, nil
}

// opening returns the token before a prompt accompanied by media: texts with media are
// whole documents, which begin after the end of another.
func (l *Language) opening(prompt []int32, s Seen) []int32 {
	eos, ok := l.Tokenizer.Special(token.EOS)
	if !ok || s == nil || prompt[0] == eos {
		return nil
	}
	return []int32{eos}
}

// Length returns how many tokens a prompt has for the model.
func (l *Language) Length(prompt []int32, s Seen) int {
	if len(prompt) == 0 {
		return 0
	}
	return len(l.opening(prompt, s)) + len(prompt)
}

// variant is the model for plain texts, or for texts with media.
type variant struct {
	name   string // prefix of its functions' names
	logits func(b *graph.Builder, ids, last *graph.Value) *graph.Value
}

// Names of the variants.
const (
	textVariant  = "window"
	mediaVariant = "media"
)

// variants returns the required variants of a model without a cache.
func (l *Language) variants(text, media bool) (out []variant) {
	if l.Uncached != nil && text {
		out = append(out, variant{textVariant, l.Uncached.Logits})
	}
	if media && l.Media != nil {
		out = append(out, variant{mediaVariant, l.Media.Logits})
	}
	return out
}
