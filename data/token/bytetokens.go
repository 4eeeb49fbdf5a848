package token

import "fmt"

// Bytes is the tokenizer of byte and character models: a byte's id is its value, and the special
// tokens follow from 256 on.
func Bytes(specials ...Special) (*Tokenizer, error) {
	b := newBPEFile()
	b.whole = true
	for v := range 256 {
		b.add(string(byteRune[v]))
	}
	for _, s := range specials {
		if err := b.special(s); err != nil {
			return nil, fmt.Errorf("byte tokenizer: %w", err)
		}
	}
	return b.tokenizer()
}
