package token

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// bareFile is a tokenizer.json with as little as possible.
const bareFile = `{"version":"1.0","added_tokens":[],"normalizer":null,"pre_tokenizer":null,"post_processor":null,"decoder":null,
"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}}`

// with is bareFile with one slot changed.
func with(slot, value string) string {
	var file map[string]json.RawMessage
	if err := json.Unmarshal([]byte(bareFile), &file); err != nil {
		panic(err)
	}
	file[slot] = json.RawMessage(value)
	out, err := json.Marshal(file)
	if err != nil {
		return fmt.Sprintf(`{%q:%s}`, slot, value) // not JSON, on purpose
	}
	return string(out)
}

// Anything unsupported or wrong is an error that says where it is.
func TestParseErrors(t *testing.T) {
	bpe := func(fields string) string {
		return with("model", `{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"],`+fields+`}`)
	}
	for _, c := range []struct{ file, want string }{
		{`{`, "not JSON"},
		{"\xff", "not UTF-8"},
		{`[]`, "expected an object, found []"},
		{`{}`, "model: missing; expected an object"},
		{with("version", `"2.0"`), `version: version "2.0" is not known`},
		{with("novelty", `1`), "novelty: this field is not supported"},
		{with("model", `{"type":"Neural"}`), `model.type: model "Neural" is not supported`},
		{with("model", `{}`), "model.type: missing"},
		{bpe(`"dropout":0.1`), "model.dropout: dropout 0.1 is not supported"},
		{bpe(`"unk_token":"?"`), `model.unk_token: unk_token "?" is not in the vocabulary`},
		{bpe(`"unk_token":3`), "model.unk_token: expected a string, found 3"},
		{bpe(`"future":true`), "model.future: this field is not supported"},
		{with("model", `{"type":"BPE","vocab":{"a":0,"b":1},"merges":["a b"]}`), `model.merges[0]: merge ["a" "b"] uses or makes a token`},
		{with("model", `{"type":"BPE","vocab":{"a":0,"b":1},"merges":["ab"]}`), `model.merges[0]: expected a pair of tokens`},
		{with("model", `{"type":"BPE","vocab":{"a":0,"b":1},"merges":[["a","b","c"]]}`), `model.merges[0]: expected a pair of tokens`},
		{with("model", `{"type":"BPE","vocab":{"a":0,"b":1},"merges":["a b",["a","b"]]}`), `model.merges: expected an array of merges`},
		{with("model", `{"type":"BPE","vocab":{"a":0,"b":0},"merges":[]}`), `model.vocab: tokens "a" and "b" have the same id 0`},
		{with("model", `{"type":"BPE","vocab":{"a":2000000000},"merges":[]}`), `ids this sparse are not supported`},
		{with("model", `{"type":"BPE","vocab":{"a":-1},"merges":[]}`), `token "a" has id -1`},
		{with("model", `{"type":"BPE","vocab":{"a":0.5},"merges":[]}`), "model.vocab: expected an object of tokens and ids"},
		{with("model", `{"type":"BPE","continuing_subword_prefix":"###","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}`), "shorter than continuing_subword_prefix"},
		{with("model", `{"type":"WordPiece","vocab":{"a":0}}`), `model.unk_token: unk_token "[UNK]" is not in the vocabulary`},
		{with("model", `{"type":"WordLevel","vocab":{"a":0},"unk_token":"?"}`), `model.unk_token: unk_token "?" is not in the vocabulary`},
		{with("model", `{"type":"Unigram","vocab":[["a",0]]}`), "model.unk_id: missing"},
		{with("model", `{"type":"Unigram","vocab":[["a",0]],"unk_id":1}`), "unk_id 1 is not in the vocabulary of 1 pieces"},
		{with("model", `{"type":"Unigram","vocab":[["a",0],["a",1]],"unk_id":0}`), `model.vocab[1]: piece "a" is given twice`},
		{with("model", `{"type":"Unigram","vocab":[["a"]],"unk_id":0}`), "model.vocab[0]: expected a piece and its score"},
		{with("added_tokens", `[{"id":7,"content":"x"}]`), `added_tokens[0].id: added token "x" has id 7 here, but the vocabulary gives it 3`},
		{with("added_tokens", `[{"id":0,"content":""}]`), "added_tokens[0]: an added token without content"},
		{with("added_tokens", `[{"id":0}]`), "added_tokens[0].content: missing"},
		{with("added_tokens", `[{"id":0,"content":"a","lstrip":1}]`), "added_tokens[0].lstrip: expected true or false, found 1"},
		{with("normalizer", `{"type":"Magic"}`), `normalizer.type: normalizer "Magic" is not supported`},
		{with("normalizer", `{"type":"NFC","form":1}`), "normalizer.form: this field is not supported"},
		{with("normalizer", `{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Magic"}]}`), "normalizer.normalizers[1].type: normalizer"},
		{with("normalizer", `{"type":"Replace","pattern":{"Regex":"(?<name>a)"},"content":""}`), `normalizer.pattern.Regex: regular expression: at byte 0: the group "(?<na" is not supported`},
		{with("normalizer", `{"type":"Replace","pattern":{"String":""},"content":""}`), "normalizer.pattern.String: an empty pattern"},
		{with("normalizer", `{"type":"Replace","pattern":{},"content":""}`), "normalizer.pattern.String: missing"},
		{with("normalizer", `{"type":"Replace","pattern":{"String":"a","Regex":"b"},"content":""}`), "expected String or Regex, found both"},
		{with("normalizer", `{"type":"Precompiled","precompiled_charsmap":"!"}`), "normalizer.precompiled_charsmap: not base64"},
		{with("normalizer", `{"type":"Precompiled","precompiled_charsmap":""}`), "shorter than its header"},
		{with("normalizer", `{"type":"Precompiled","precompiled_charsmap":"/////w=="}`), "says its trie has 4294967295 bytes, of 0 in all"},
		{with("pre_tokenizer", `{"type":"UnicodeScripts"}`), `pre_tokenizer.type: pre-tokenizer "UnicodeScripts" is not supported`},
		{with("pre_tokenizer", `{"type":"Split","pattern":{"String":"a"},"behavior":"Gone"}`), "pre_tokenizer.behavior: expected Removed"},
		{with("pre_tokenizer", `{"type":"Metaspace","replacement":"ab"}`), "pre_tokenizer.replacement: expected one character"},
		{with("pre_tokenizer", `{"type":"Metaspace","replacement":"_","prepend_scheme":"often"}`), "expected always, first or never"},
		{with("pre_tokenizer", `{"type":"Metaspace","replacement":"_","prepend_scheme":"first","add_prefix_space":false}`), "says false, but prepend_scheme says first"},
		{with("decoder", `{"type":"CTC"}`), `decoder.type: decoder "CTC" is not supported`},
		{with("post_processor", `{"type":"Magic"}`), `post_processor.type: post-processor "Magic" is not supported`},
		{with("post_processor", `{"type":"BertProcessing","cls":["x",9],"sep":["a",0]}`), `post_processor.cls[1]: token "x" has id 9 here, which is not in the vocabulary`},
		{with("post_processor", `{"type":"TemplateProcessing","single":[{"Sequence":{"id":"C","type_id":0}}],"pair":[],"special_tokens":{}}`), "expected A or B"},
		{with("post_processor", `{"type":"TemplateProcessing","single":[{"Sequence":{"id":"B","type_id":0}}],"pair":[],"special_tokens":{}}`), "a single text has no B"},
		{with("post_processor", `{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"x","type_id":0}}],"pair":[],"special_tokens":{}}`), "is not in special_tokens"},
		{with("post_processor", `{"type":"Sequence","processors":[{"type":"BertProcessing","cls":["a",0],"sep":["a",0]},{"type":"BertProcessing","cls":["a",0],"sep":["a",0]}]}`), "more than one processor"},
		{with("truncation", `{"max_length":-1,"strategy":"LongestFirst"}`), "truncation.max_length: must not be negative"},
		{with("truncation", `{"max_length":1,"strategy":"Random"}`), "truncation.strategy: expected LongestFirst"},
		{with("truncation", `{"max_length":1,"strategy":"LongestFirst","direction":"Up"}`), "truncation.direction: expected Left or Right"},
		{with("padding", `{"strategy":{"Fixed":99999999999},"pad_id":0,"pad_type_id":0,"pad_token":"a"}`), "padding: lengths from 0 to"},
		{with("padding", `{"strategy":"Most","pad_id":0,"pad_type_id":0,"pad_token":"a"}`), "padding.strategy: expected BatchLongest or Fixed"},
	} {
		_, err := Parse("tokenizer.json", []byte(c.file))
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "tokenizer.json: ") {
			t.Errorf("%.200s:\n  error %v\n  want one with %s", c.file, err, c.want)
		}
	}
}

// Regular expressions that the two engines read differently are refused.
func TestRegexErrors(t *testing.T) {
	for re, want := range map[string]string{
		`(a`: "regular expression", `a\`: "a backslash at the end", `\1`: `\1 is not supported`, `\G`: `\G is not supported`, `\h`: `\h is not supported`,
		`a**`: "a quantifier after a quantifier", `a{2}{3}`: "a quantifier after", `a{2}+`: "a quantifier after", `a{2}?`: "a quantifier after",
		`a{x}`: "the repetition {x}", `a{`: "an open {", `a{99999}`: "the repetition", `(?m)a`: "the group", `a(?i)b`: "the group", `(?P<n>a)`: "the group",
		`(?i)ss`: `"ss" without regard to case`, `(?i:ü)`: "without regard to case", `[a&&b]`: "intersection", `[[:alpha:]]`: "within brackets", `[]a]`: "within brackets",
		`[a`: "an open [", `\p{Emoji}`: `\p{Emoji} is not supported`, `\pL`: "needs {...}", `\x{110000}`: "not a character code", `\x{`: `an open \x{`,
		`[\W]`: `\W is not supported`, `[\b]`: `\b is not supported`, `\uD800`: "not a character code",
	} {
		if _, err := compileRegex(re); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", re, err, want)
		}
	}
}

func TestPrepareErrors(t *testing.T) {
	for want, file := range map[string]string{
		"leaves no room for 2 special tokens": `{"truncation":{"max_length":1,"strategy":"LongestFirst"},"post_processor":{"type":"BertProcessing","cls":["a",0],"sep":["b",1]}}`,
		"(OnlySecond) needs to cut 2":         `{"truncation":{"max_length":1,"strategy":"OnlySecond"}}`,
	} {
		var slots map[string]json.RawMessage
		if err := json.Unmarshal([]byte(file), &slots); err != nil {
			t.Fatal(err)
		}
		full := map[string]json.RawMessage{}
		if err := json.Unmarshal([]byte(bareFile), &full); err != nil {
			t.Fatal(err)
		}
		for k, v := range slots {
			full[k] = v
		}
		raw, err := json.Marshal(full)
		if err != nil {
			t.Fatal(err)
		}
		tok, err := Parse("tokenizer.json", raw)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tok.Prepare("abaa"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
	tok, err := Parse("tokenizer.json", []byte(bareFile))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tok.Prepare(); err == nil {
		t.Error("no text must be an error")
	}
	if got := prepare(tok, "abxb", "b"); got != "2:0:0-2 1:0:2-3 1:1:0-1" { // unknown characters are dropped, and not in any span
		t.Errorf("prepared %s", got)
	}
}
