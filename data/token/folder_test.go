package token

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func writeFiles(t testing.TB, files map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func phobertFolder(t testing.TB) string {
	return writeFiles(t, map[string]string{
		"vocab.txt": string(unzip(t, "phobert.vocab.txt.gz")),
		"bpe.codes": string(unzip(t, "phobert.bpe.codes.gz")),
	})
}

// The goldens of PhoBERT are those of transformers' PhobertTokenizer.
func TestPhoBERT(t *testing.T) {
	tok, err := LoadFolder(phobertFolder(t))
	if err != nil {
		t.Fatal(err)
	}
	texts := goldenTexts()
	failures := 0
	for i, line := range goldenLines(t, "phobert.golden.gz") {
		text, other := texts[i], texts[(i+1)%len(texts)]
		want := unjson[[]int32](t, line[0])
		got := tok.Encode(nil, text)
		if !slices.Equal(got, want) {
			if failures++; failures < 5 {
				t.Errorf("text %d %q: ids\n got %v %q\nwant %v %q", i, text, got, spell(tok, got), want, spell(tok, want))
			}
			continue
		}
		for j, fact := range []struct{ name, got string }{
			{"decoded", tok.Decode(want, false)},
			{"decoded without special tokens", tok.Decode(want, true)},
			{"prepared", prepareIDs(t, tok, text)},
			{"prepared pair", prepareIDs(t, tok, text, other)},
		} {
			if sum := crc32.ChecksumIEEE([]byte(fact.got)); strconv.Itoa(int(sum)) != string(line[1+j]) {
				if failures++; failures < 5 {
					t.Errorf("text %d %q: %s differ: %q", i, text, fact.name, fact.got)
				}
			}
		}
	}
	if failures > 0 {
		t.Errorf("%d failures", failures)
	}
	for role, want := range map[Role]int32{BOS: 0, CLS: 0, PAD: 1, EOS: 2, SEP: 2, UNK: 3, MASK: int32(tok.VocabSize()) - 1} {
		if id, ok := tok.Special(role); !ok || id != want {
			t.Errorf("%s is %d, %v; want %d", role, id, ok, want)
		}
	}
	// Spans cover the words.
	pieces, err := tok.Prepare("phòng trọ\nđẹp")
	if err != nil {
		t.Fatal(err)
	}
	covered := 0
	for _, p := range pieces {
		covered += p.Span.End - p.Span.Start
	}
	if want := len("phòngtrọ\nđẹp"); covered != want {
		t.Errorf("the spans cover %d bytes, want %d: %s", covered, want, showPieces(pieces))
	}
	dir := t.TempDir()
	if err := tok.Save(dir); err != nil {
		t.Fatal(err)
	}
	again, err := LoadFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := tok.Encode(nil, texts[1]), again.Encode(nil, texts[1]); !slices.Equal(a, b) {
		t.Errorf("after saving and loading, ids are %v, were %v", b, a)
	}
}

func prepareIDs(t *testing.T, tok *Tokenizer, texts ...string) string {
	t.Helper()
	pieces, err := tok.Prepare(texts...)
	if err != nil {
		t.Fatal(err)
	}
	var ids []int32
	for _, p := range pieces {
		ids = append(ids, p.ID)
	}
	return showIDs(ids)
}

// olderFiles takes a tokenizer.json apart into the files that older folders have.
func olderFiles(t *testing.T, kind string) (vocabJSON, vocabText, merges string) {
	t.Helper()
	file := unjson[struct {
		Model struct {
			Vocab  map[string]int
			Merges [][2]string
		}
	}](t, unzip(t, kind+".tokenizer.json.gz"))
	raw, err := json.Marshal(file.Model.Vocab)
	if err != nil {
		t.Fatal(err)
	}
	lines := make([]string, len(file.Model.Vocab))
	for token, id := range file.Model.Vocab {
		lines[id] = token + "\n"
	}
	merges = "#version: 0.2\n"
	for _, m := range file.Model.Merges {
		merges += m[0] + " " + m[1] + "\n"
	}
	return string(raw), strings.Join(lines, ""), merges
}

// A folder from before tokenizer.json gives the same ids as the tokenizer.json that transformers would make of it.
func TestOlderFolders(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine, many files")
	}
	gptVocab, _, gptMerges := olderFiles(t, "gpt2")
	robertaVocab, _, robertaMerges := olderFiles(t, "roberta")
	_, bertVocab, _ := olderFiles(t, "bert-uncased")
	robertaConfig := `{"tokenizer_class": "RobertaTokenizerFast", "add_prefix_space": true, "added_tokens_decoder": {
		"0": {"content": "<s>", "special": true}, "1": {"content": "<pad>", "special": true}, "2": {"content": "</s>", "special": true},
		"3": {"content": "<unk>", "special": true}, "4": {"content": "<mask>", "special": true, "lstrip": true},
		"2500": {"content": "NEW", "special": false, "rstrip": true}, "%d": {"content": "word", "special": false, "single_word": true, "normalized": true},
		"2501": {"content": "Ångström", "special": false, "normalized": true}}}`
	wordID := unjson[map[string]int](t, []byte(robertaVocab))["word"]
	for kind, files := range map[string]map[string]string{
		"gpt2":         {"vocab.json": gptVocab, "merges.txt": gptMerges},
		"roberta":      {"vocab.json": robertaVocab, "merges.txt": robertaMerges, "tokenizer_config.json": fmt.Sprintf(robertaConfig, wordID)},
		"bert-uncased": {"vocab.txt": bertVocab, "config.json": `{"model_type": "bert"}`},
	} {
		tok, err := LoadFolder(writeFiles(t, files))
		if err != nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		want := goldenTokenizer(t, kind)
		for i, text := range goldenTexts() {
			if a, b := prepare(tok, text), prepare(want, text); a != b {
				t.Errorf("%s: text %d %q:\n got %s\nwant %s", kind, i, text, a, b)
				break
			}
			ids := want.Encode(nil, text)
			if a, b := tok.Decode(ids, true), want.Decode(ids, true); a != b {
				t.Errorf("%s: text %d decodes to %q, want %q", kind, i, a, b)
				break
			}
		}
	}
}

func TestRoles(t *testing.T) {
	file := string(unzip(t, "bert-uncased.tokenizer.json.gz"))
	dir := writeFiles(t, map[string]string{
		"tokenizer.json":          file,
		"special_tokens_map.json": `{"eos_token": "the", "bos_token": {"content": "[CLS]", "lstrip": false}, "additional_special_tokens": ["x"]}`,
		"tokenizer_config.json":   `{"eos_token": "[SEP]", "pad_token": null, "model_max_length": 512}`,
	})
	tok, err := Load(filepath.Join(dir, "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	for role, want := range map[Role]string{EOS: "[SEP]", BOS: "[CLS]", PAD: "[PAD]", MASK: "[MASK]"} {
		id, ok := tok.Special(role)
		if got, _ := tok.Token(id); !ok || got != want {
			t.Errorf("%s is %q, want %q", role, got, want)
		}
	}
	if got := tok.Specials(); !slices.Equal(got, []string{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}) {
		t.Errorf("special tokens %q", got)
	}
}

func TestFolderErrors(t *testing.T) {
	for want, files := range map[string]map[string]string{
		"expected tokenizer.json, vocab.json with merges.txt": {"model.bin": ""},
		"spiece.model: a SentencePiece model is not":          {"spiece.model": ""},
		"a clip tokenizer without tokenizer.json":             {"vocab.json": "{}", "merges.txt": "", "tokenizer_config.json": `{"tokenizer_class": "CLIPTokenizer"}`},
		"merges.txt:2: expected two tokens":                   {"vocab.json": `{"a":0}`, "merges.txt": "#version: 0.2\na b c\n"},
		`vocabulary has no "[CLS]"`:                           {"vocab.txt": "[UNK]\n"},
		"vocab.txt:2: token \"a\" is given twice":             {"vocab.txt": "a\na\n"},
		"vocab.txt:1: expected a token and its count":         {"vocab.txt": "a\n", "bpe.codes": ""},
		"bpe.codes:1: expected two symbols and their count":   {"vocab.txt": "a 1\n", "bpe.codes": "a b\n"},
		"bpe.codes: the last line has no end":                 {"vocab.txt": "a 1\n", "bpe.codes": "a b 1"},
		"vocab.txt: not UTF-8":                                {"vocab.txt": "\xff 1\n", "bpe.codes": ""},
		"tokenizer_config.json: not JSON":                     {"vocab.txt": "a\n", "tokenizer_config.json": "{"},
		`eos_token "x" is not in the vocabulary`:              {"tokenizer.json": bareFile, "tokenizer_config.json": `{"eos_token": "x"}`},
		"no token has id 1":                                   {"vocab.json": `{"a":0,"b":2}`, "merges.txt": ""},
		"add_bos_token: not supported":                        {"vocab.json": `{"a":0}`, "merges.txt": "", "tokenizer_config.json": `{"add_bos_token": true}`},
	} {
		if _, err := LoadFolder(writeFiles(t, files)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
	if _, err := Load(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a missing file must be an error")
	}
}
