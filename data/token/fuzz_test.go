package token

import (
	"bytes"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// exercise uses every part of a tokenizer, however odd its file.
func exercise(t *testing.T, tok *Tokenizer, text []byte) {
	t.Helper()
	ids := tok.EncodeBytes(nil, text)
	for _, id := range ids {
		if id < 0 || int(id) >= tok.VocabSize() {
			t.Fatalf("id %d; the vocabulary has %d", id, tok.VocabSize())
		}
	}
	tok.EncodeOrdinary(nil, text)
	want := tok.Decode(ids, false)
	tok.DecodeBytes(nil, ids)
	s := tok.Stream(false)
	var b strings.Builder
	for _, id := range ids[:min(len(ids), 50)] {
		b.WriteString(s.Next(id))
		tok.TokenBytes(id)
	}
	b.WriteString(s.Flush())
	if len(ids) <= 50 && tok.isByteLevel() && b.String() != want {
		t.Fatalf("streamed %q, decoded %q", b.String(), want)
	}
	for _, texts := range [][]string{{string(text)}, {string(text), "b ab"}} {
		pieces, err := tok.Prepare(texts...)
		if err != nil {
			continue
		}
		for _, p := range pieces {
			if source := texts[p.Text]; p.Span.Start < 0 || p.Span.Start > p.Span.End || p.Span.End > len(source) {
				t.Fatalf("span %v of a text of %d bytes", p.Span, len(source))
			}
		}
	}
}

// smallFiles are files with one of each component, small enough for a fuzzer to change relevant
// parts.
func smallFiles() (out [][]byte) {
	bpe := `"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"Ġ":3,"<0x63>":4},"merges":["a b"],"byte_fallback":true}`
	uni := `"model":{"type":"Unigram","unk_id":0,"vocab":[["?",0],["a",-1.5],["▁ab",-2],["<0xC3>",-3e0],["b",-1]],"byte_fallback":true}`
	word := `"model":{"type":"WordPiece","unk_token":"?","vocab":{"?":0,"a":1,"##b":2,"b":3}}`
	level := `"model":{"type":"WordLevel","unk_token":"?","vocab":{"?":0,"a":1,"b":2}}`
	for _, s := range []string{
		bpe + `,"added_tokens":[{"id":5,"content":"xy","lstrip":true,"rstrip":true,"single_word":true,"normalized":true,"special":true}]`,
		bpe + `,"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":true},"decoder":{"type":"ByteLevel"},"post_processor":{"type":"RobertaProcessing","cls":["a",0],"sep":["b",1]}`,
		bpe + `,"normalizer":{"type":"Sequence","normalizers":[{"type":"NFKC"},{"type":"Lowercase"},{"type":"Prepend","prepend":"x"},{"type":"StripAccents"}]}`,
		bpe + `,"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"\\p{L}+|\\s(?!a)"},"behavior":"MergedWithNext","invert":true},{"type":"Digits"}]}`,
		uni + `,"pre_tokenizer":{"type":"Metaspace","replacement":"▁","prepend_scheme":"first"},"decoder":{"type":"Sequence","decoders":[{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":9}]}`,
		uni + `,"normalizer":{"type":"Precompiled","precompiled_charsmap":"CAAAAAAEAAAAAAAAYQBi"},"decoder":{"type":"Metaspace","replacement":"▁"}`,
		word + `,"normalizer":{"type":"BertNormalizer"},"pre_tokenizer":{"type":"BertPreTokenizer"},"decoder":{"type":"WordPiece"},"post_processor":{"type":"BertProcessing","cls":["a",1],"sep":["b",3]}`,
		word + `,"truncation":{"max_length":3,"strategy":"LongestFirst","direction":"Left"},"padding":{"strategy":{"Fixed":4},"pad_id":0,"pad_type_id":0,"pad_token":"?","pad_to_multiple_of":3}`,
		level + `,"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Whitespace"},{"type":"Punctuation","behavior":"Contiguous"},{"type":"CharDelimiterSplit","delimiter":"-"}]},"decoder":{"type":"BPEDecoder"}`,
		level + `,"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"?","type_id":1}},{"Sequence":{"id":"A","type_id":0}}],"pair":[{"Sequence":{"id":"B","type_id":0}}],"special_tokens":{"?":{"id":"?","ids":[0],"tokens":["?"]}}}`,
		level + `,"normalizer":{"type":"Sequence","normalizers":[{"type":"Nmt"},{"type":"Strip","strip_left":true,"strip_right":true},{"type":"Replace","pattern":{"Regex":"x*"},"content":"-"},{"type":"NFD"}]}`,
	} {
		out = append(out, []byte(`{"version":"1.0",`+s+`}`))
	}
	return out
}

var awkward = []byte("ab xy \tĠaé e\u0301\u0323 ▁ab한 \u1112\u1161\u11ab 你好١٢3-\xff\xc3\x28\xf0\x9f\x98👩‍👩‍👧 \u200b\r\n'S it's")

func FuzzParse(f *testing.F) {
	for _, file := range smallFiles() {
		if _, err := Parse("seed", file); err != nil {
			f.Fatal(err)
		}
		f.Add(file, awkward)
	}
	f.Fuzz(func(t *testing.T, file, text []byte) {
		if len(text) > 1<<10 {
			return // the time of expressions may grow fast
		}
		if tok, err := Parse("fuzz", file); err == nil {
			exercise(t, tok, text)
		}
	})
}

// Files with changed values, in the ordinary suite.
func TestMutatedFiles(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine, many files")
	}
	rng := rand.New(rand.NewPCG(5, 6))
	parsed := 0
	for _, file := range smallFiles() {
		for range 300 {
			var v any
			if err := json.Unmarshal(file, &v); err != nil {
				t.Fatal(err)
			}
			for range 1 + rng.IntN(2) {
				v = mutate(rng, v)
			}
			changed, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			if tok, err := Parse("changed", changed); err == nil {
				parsed++
				exercise(t, tok, awkward)
			}
		}
	}
	t.Logf("%d changed files were read", parsed)
	if parsed < 300 {
		t.Errorf("only %d changed files could be read", parsed)
	}
}

// mutate changes one value somewhere in v.
func mutate(rng *rand.Rand, v any) any {
	switch v := v.(type) {
	case map[string]any:
		keys := slices.Sorted(maps.Keys(v))
		if len(keys) == 0 {
			return nil
		}
		key := keys[rng.IntN(len(keys))]
		switch rng.IntN(8) {
		case 0:
			delete(v, key)
		case 1:
			v[key] = v[keys[rng.IntN(len(keys))]]
		default:
			v[key] = mutate(rng, v[key])
		}
		return v
	case []any:
		if len(v) == 0 {
			return v
		}
		i := rng.IntN(len(v))
		switch rng.IntN(8) {
		case 0:
			return slices.Delete(v, i, i+1)
		case 1:
			return append(v, v[i])
		}
		v[i] = mutate(rng, v[i])
		return v
	case string:
		other := []string{"", " ", "a", "▁", "Removed", "Isolated", "Contiguous", "MergedWithPrevious", "always", "never", "NFC", "NFKD", "Left", "OnlyFirst", "e\u0301", "a*?", "A", "B", "?"}
		return other[rng.IntN(len(other))]
	case float64:
		other := []any{0, 1, -1, 2, 3, 5, 1e9, -1e300, 0.5, 2147483648.0}
		return other[rng.IntN(len(other))]
	case bool:
		return !v
	}
	return rng.IntN(3) == 0
}

func FuzzByteLevel(f *testing.F) {
	var all []*Tokenizer
	for _, kind := range []string{"gpt2", "roberta", "llama3", "o200k", "plain-regex"} {
		all = append(all, goldenTokenizer(f, kind))
	}
	f.Add(awkward)
	f.Add([]byte(strings.Repeat("\xe4\xbd", 70)))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, tok := range all {
			exercise(t, tok, text)
			if tok.lossless && !tok.prefixSpace && len(tok.added) < 2 {
				if back := tok.DecodeBytes(nil, tok.EncodeBytes(nil, text)); !bytes.Equal(back, text) {
					t.Fatalf("%q came back as %q", text, back)
				}
			}
		}
	})
}

func FuzzScanners(f *testing.F) {
	f.Add(string(awkward))
	compiled := map[string]regex{}
	for pattern := range scanners {
		re, err := compileRegex(pattern)
		if err != nil {
			f.Fatal(err)
		}
		compiled[pattern] = re
	}
	f.Fuzz(func(t *testing.T, text string) {
		if text = known(lossy(text)); len(text) > 1<<12 {
			return
		}
		for pattern, scan := range scanners {
			if a, b := showSpans(scan.find(text)), showSpans(compiled[pattern].find(text)); a != b {
				t.Fatalf("%s\n%q\nscanner %s\nregex   %s", pattern, text, a, b)
			}
		}
	})
}

// known removes the characters that the Go release's tables, which regexp2 uses, do not have.
func known(text string) string {
	return strings.Map(func(r rune) rune {
		if c := classOf(r); c&(letter|number) != 0 && !unicode.In(r, unicode.L, unicode.N) || c&upper != 0 && !unicode.In(r, unicode.L, unicode.M) {
			return -1
		}
		return r
	}, text)
}

// The scanners cut every text like their patterns.
func TestScanners(t *testing.T) {
	for pattern, scan := range scanners {
		re, err := compileRegex(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range goldenTexts() {
			text = known(text)
			if a, b := showSpans(scan.find(text)), showSpans(re.find(text)); a != b {
				t.Errorf("%s\n%q\nscanner %s\nregex   %s", pattern, text, a, b)
				break
			}
		}
	}
}

func FuzzRegex(f *testing.F) {
	for pattern := range scanners {
		f.Add(pattern)
	}
	for _, pattern := range []string{`(?i)the|a(?!n)`, `[^\w\-]++|\p{^Lu}{2,}?`, `^.|(?<=a)\b$`, `\x{41}|\u00e9*`} {
		f.Add(pattern)
	}
	f.Fuzz(func(t *testing.T, pattern string) {
		re, err := compileRegex(pattern)
		if err != nil {
			return
		}
		end := 0
		for _, m := range re.find("aé 1\n") {
			if m.Start < end || m.End < m.Start || m.End > 6 {
				t.Fatalf("match %v after %d", m, end)
			}
			end = m.End
		}
	})
}

func FuzzFolders(f *testing.F) {
	f.Add("a@@ 1\nb 2\n", "a b</w> 9\n", `{"a":0,"b":1,"ab":2}`, "#version: 0.2\na b\n", `{"eos_token":"a","added_tokens_decoder":{"3":{"content":"x"}}}`)
	f.Fuzz(func(t *testing.T, vocab, codes, vocabJSON, merges, config string) {
		for _, files := range []map[string]string{
			{"vocab.txt": vocab, "bpe.codes": codes, "tokenizer_config.json": config},
			{"vocab.json": vocabJSON, "merges.txt": merges, "tokenizer_config.json": config},
			{"vocab.txt": "[UNK]\n[CLS]\n[SEP]\n" + vocab, "tokenizer_config.json": config},
		} {
			dir := t.TempDir()
			for name, content := range files {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if tok, err := LoadFolder(dir); err == nil {
				exercise(t, tok, awkward)
			}
		}
	})
}
