package token

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
)

// withParts returns a tokenizer of a few characters with some of its components, as JSON.
func withParts(t *testing.T, parts map[string]any) (*Tokenizer, error) {
	t.Helper()
	vocab := map[string]int{}
	for i := range 128 {
		vocab[string(rune(i))] = i
	}
	vocab["aaaaaaaa"] = 128
	file := map[string]any{"model": map[string]any{"type": "WordLevel", "vocab": vocab, "unk_token": "?"}}
	for name, v := range parts {
		file[name] = v
	}
	raw, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	return Parse("bomb.json", raw)
}

func sequence(kind, list string, n int, part any) map[string]any {
	all := make([]any, n)
	for i := range all {
		all[i] = part
	}
	return map[string]any{"type": kind, list: all}
}

// charsMapOf returns a character map that replaces a by n of them.
func charsMapOf(n int) string {
	// A double array whose root leads by 'a' to a unit with a leaf, which leads to offset 0.
	units := make([]uint32, 512)
	units[0] = 1 << 10                      // children at 0 ^ 1
	units[1^'a'] = 'a' | 1<<8 | (256 << 10) // has a leaf, children at (1 ^ 'a') ^ 256
	units[(1^'a')^256] = 1 << 31            // value 0
	raw := binary.LittleEndian.AppendUint32(nil, uint32(4*len(units)))
	for _, u := range units {
		raw = binary.LittleEndian.AppendUint32(raw, u)
	}
	return base64.StdEncoding.EncodeToString(append(append(raw, strings.Repeat("a", n)...), 0))
}

// A tokenizer file that turns little into much is refused, when it is read or when it
// gets a text, and costs no more than the bound.
func TestTokenizerBombs(t *testing.T) {
	old := matchTimeout
	matchTimeout = 100 * time.Millisecond
	defer func() { matchTimeout = old }()
	double := map[string]any{"type": "Replace", "pattern": map[string]any{"String": "a"}, "content": "aa"}
	every := map[string]any{"type": "Replace", "pattern": map[string]any{"Regex": "."}, "content": "$0$0$0$0"}
	much := map[string]any{"type": "Replace", "pattern": map[string]any{"String": "a"}, "content": strings.Repeat("a", 1<<20)}
	prepend := map[string]any{"type": "Prepend", "prepend": strings.Repeat("a", 1<<13)}
	charsmap := func(n int) any { return map[string]any{"type": "Precompiled", "precompiled_charsmap": charsMapOf(n)} }
	split := func(re string) any {
		return map[string]any{"type": "Split", "pattern": map[string]any{"Regex": re}, "behavior": "Isolated", "invert": false}
	}
	byteLevel := map[string]any{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": false}
	deep := func(kind, list string, part any) any {
		for range 40 {
			part = sequence(kind, list, 1, part)
		}
		return part
	}
	added := []any{map[string]any{"id": 129, "content": "aaaaab", "normalized": true, "special": false, "lstrip": false, "rstrip": false, "single_word": false}}
	for name, c := range map[string]struct {
		parts map[string]any
		text  string
		want  string
	}{
		"doubling":             {map[string]any{"normalizer": sequence("Sequence", "normalizers", 40, double)}, "aaaa", "grow without end"},
		"doubling when read":   {map[string]any{"normalizer": sequence("Sequence", "normalizers", 40, double), "added_tokens": added}, "", "grow without end"},
		"every character":      {map[string]any{"normalizer": sequence("Sequence", "normalizers", 40, every)}, "aaaa", "grow without end"},
		"one long replacement": {map[string]any{"normalizer": much}, strings.Repeat("a", 4096), "grow without end"},
		"long prefixes":        {map[string]any{"normalizer": sequence("Sequence", "normalizers", 20, prepend)}, "a", "grow without end"},
		"character maps":       {map[string]any{"normalizer": sequence("Sequence", "normalizers", 40, charsmap(2))}, "aaaa", "grow without end"},
		"a long map":           {map[string]any{"normalizer": charsmap(1 << 20)}, strings.Repeat("a", 4096), "grow without end"},
		"byte levels":          {map[string]any{"pre_tokenizer": sequence("Sequence", "pretokenizers", 60, byteLevel)}, "é", "grow without end"},
		"byte level normalizers": {map[string]any{"normalizer": sequence("Sequence", "normalizers", 60, map[string]any{"type": "ByteLevel"})},
			"é", "grow without end"},
		"decoders":             {map[string]any{"decoder": sequence("Sequence", "decoders", 40, double)}, "a", "grow without end"},
		"a long decoder":       {map[string]any{"decoder": much}, "a", "grow without end"},
		"deep normalizers":     {map[string]any{"normalizer": deep("Sequence", "normalizers", double)}, "", "deep"},
		"deep pre-tokenizers":  {map[string]any{"pre_tokenizer": deep("Sequence", "pretokenizers", byteLevel)}, "", "deep"},
		"deep decoders":        {map[string]any{"decoder": deep("Sequence", "decoders", double)}, "", "deep"},
		"deep post-processors": {map[string]any{"post_processor": deep("Sequence", "processors", byteLevel)}, "", "deep"},
		"many":                 {map[string]any{"normalizer": sequence("Sequence", "normalizers", 1001, double)}, "", "1001 components"},
		"alternatives":         {map[string]any{"pre_tokenizer": split(`(?:a|aa)+b`)}, strings.Repeat("a", 200), "tries too many ways"},
		"a long stack":         {map[string]any{"pre_tokenizer": split(`(?:a|b)*(?!a|b)[^ab]`)}, strings.Repeat("a", 8<<20), "tries too many ways"},
		"in a normalizer": {map[string]any{"normalizer": map[string]any{"type": "Replace", "pattern": map[string]any{"Regex": `(?:a|a?)+[^a]`}, "content": "x"}},
			strings.Repeat("a", 64), "tries too many ways"},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			tok, err := withParts(t, c.parts)
			if err == nil {
				err = func() (err error) {
					defer Catch(&err)
					tok.EncodeOrdinary(nil, []byte(c.text))
					tok.Decode([]int32{'a', 'a', 'a', 'a'}, false)
					return nil
				}()
			}
			runtime.ReadMemStats(&after)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("%v; want %q", err, c.want)
			}
			// A few times the bound for a short text, plus what the test itself
			// allocates.
			if n, most := after.TotalAlloc-before.TotalAlloc, uint64(64<<20+64*len(c.text)); n > most {
				t.Errorf("%d bytes allocated, want at most %d", n, most)
			}
		})
	}
}

// Real texts are far from the bound.
func TestGrowthOfText(t *testing.T) {
	worst := strings.Repeat("\uFDFA", 50_000) // eleven bytes for one in NFKC
	for _, normalizer := range []any{
		map[string]any{"type": "NFKD"},
		map[string]any{"type": "Sequence", "normalizers": []any{
			map[string]any{"type": "NFKC"}, map[string]any{"type": "Lowercase"},
			map[string]any{"type": "Replace", "pattern": map[string]any{"String": " "}, "content": "▁"}, map[string]any{"type": "ByteLevel"},
		}},
	} {
		tok, err := withParts(t, map[string]any{"normalizer": normalizer})
		if err != nil {
			t.Fatal(err)
		}
		err = func() (err error) {
			defer Catch(&err)
			tok.EncodeOrdinary(nil, []byte(worst))
			return nil
		}()
		if err != nil {
			t.Errorf("%v: %v", normalizer, err)
		}
	}
}

// Catch catches only its own errors.
func TestCatch(t *testing.T) {
	defer func() {
		if r := recover(); fmt.Sprint(r) != "other" {
			t.Errorf("%v went on", r)
		}
	}()
	_ = func() (err error) {
		defer Catch(&err)
		panic("other")
	}()
}
