package token

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

// The concatenated output of a stream equals Decode's, for texts and for random ids.
func TestStream(t *testing.T) {
	texts := goldenTexts()
	for _, kind := range append(goldenKinds, "phobert") {
		var tok *Tokenizer
		if kind == "phobert" {
			var err error
			if tok, err = LoadFolder(phobertFolder(t)); err != nil {
				t.Fatal(err)
			}
		} else {
			tok = goldenTokenizer(t, kind)
		}
		rng := rand.New(rand.NewPCG(1, 2))
		failures := 0
		for i := range 600 {
			var ids []int32
			if i%2 == 0 {
				ids = tok.Encode(nil, texts[rng.IntN(len(texts))])
			} else {
				for range 1 + rng.IntN(30) {
					ids = append(ids, int32(rng.IntN(tok.VocabSize()+2)))
				}
			}
			for _, skip := range []bool{false, true} {
				s := tok.Stream(skip)
				var b strings.Builder
				for _, id := range ids {
					out := s.Next(id)
					if !utf8.ValidString(out) {
						t.Fatalf("%s: %v: a part is %q", kind, ids, out)
					}
					b.WriteString(out)
				}
				b.WriteString(s.Flush())
				if got, want := b.String(), tok.Decode(ids, skip); got != want {
					if failures++; failures < 3 {
						t.Errorf("%s: %v %q:\n got %q\nwant %q", kind, ids, spell(tok, tok.Encode(nil, want)), got, want)
					}
				}
			}
		}
	}
}

// A byte-level stream gives each character as soon as its last byte has arrived.
func TestStreamAtOnce(t *testing.T) {
	tok, err := Bytes()
	if err != nil {
		t.Fatal(err)
	}
	s := tok.Stream(true)
	var parts []string
	for _, id := range tok.Encode(nil, "aé\xe4\xbd你") {
		parts = append(parts, s.Next(id))
	}
	if got := strings.Join(parts, "|"); got != "a||é|||\uFFFD||你" {
		t.Errorf("parts %q", got)
	}
}

func TestTokenBytes(t *testing.T) {
	for kind, want := range map[string]map[string]string{
		"gpt2":         {"Ġthe": " the", "<|endoftext|>": "<|endoftext|>", "Ċ": "\n"},
		"bert-uncased": {"the": " the", "##ing": "ing"},
		"unigram":      {"▁the": " the"},
		"llama2":       {"▁the": " the", "<0xE4>": "\xe4"},
		"word-level":   {"the": " the"},
	} {
		tok := goldenTokenizer(t, kind)
		for token, text := range want {
			id, ok := tok.ID(token)
			if got := string(tok.TokenBytes(id)); !ok || got != text {
				t.Errorf("%s: %q stands for %q, want %q", kind, token, got, text)
			}
		}
	}
}
