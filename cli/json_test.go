package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/alecthomas/kong"
)

// TestJSONOfEveryVerb: with --json, every command prints one JSON document on stdout and nothing else,
// whether it succeeds or refuses. A refusal contains its exit code. No key is a name of Go's.
func TestJSONOfEveryVerb(t *testing.T) {
	work := t.TempDir()
	t.Chdir(work)
	all := everySystem(t)
	lm, texts, clouds := all["refocused"].config, all["moderation"].config, all["cloudbase"].config
	bucket := "file://" + filepath.Join(work, "bucket")
	done(t, "train", "--config", lm, "--out", "run")
	done(t, "train", "--config", texts, "--out", "texts")
	tried := map[string][2]bool{}
	for _, c := range []struct {
		code int
		verb string
		args []string
	}{
		{0, "train", []string{"--config", lm, "--out", "new"}},
		{4, "train", []string{"--config", lm, "--out", "parts", "--until", "3"}},
		{0, "train", []string{"--config", clouds, "--out", "phases", "--training.max_steps", "4"}},
		{1, "train", []string{"--config", lm, "--out", "run"}},
		{2, "train", []string{"--config", lm, "--training.no_such_key", "1"}},
		{3, "train", []string{"--config", lm, "--out", "big", "--hardware.memory_budget", "1MiB"}},
		{0, "plan", []string{"--config", lm}},
		{0, "plan", []string{"--config", lm, "--card", "t4", "--card", "a100-80"}},
		{0, "plan", []string{"--config", lm, "--card", "all"}},
		{0, "plan", []string{"--config", lm, "--dump", "fuse"}},
		{0, "plan", []string{"--config", lm, "--nproc", "2", "--training.gradient_accumulation_steps", "2"}},
		{0, "plan", []string{"--config", lm, "--card", "t4", "--nodes", "2", "--link", "10Gb", "--training.gradient_accumulation_steps", "2"}},
		{2, "plan", []string{"--config", lm, "--nodes", "2", "--training.gradient_accumulation_steps", "2"}},
		{3, "plan", []string{"--config", lm, "--hardware.memory_budget", "1MiB"}},
		{3, "plan", []string{"--config", lm, "--card", "t4", "--card", "a100-80", "--hardware.memory_budget", "1MiB"}},
		{2, "plan", []string{"--config", lm, "--card", "none"}},
		{0, "fit", []string{"--config", lm}},
		{3, "fit", []string{"--config", lm, "--hardware.memory_budget", "1MiB"}},
		{0, "generate", []string{"run", "--tokens", "3"}},
		{1, "generate", []string{"nowhere"}},
		{0, "eval", []string{"run"}},
		{2, "eval", []string{"run", "--checkpoint", "7"}},
		{0, "predict", []string{"texts"}},
		{0, "predict", []string{"texts", "--output", "answers.jsonl"}},
		{1, "predict", []string{"run"}},
		{3, "serve", []string{"run", "--hardware.memory_budget", "1MiB"}},
		{0, "export", []string{"run", "folder"}},
		{1, "export", []string{"run", "folder"}},
		{0, "monitor", []string{"run"}},
		{2, "monitor", []string{"nowhere"}},
		{0, "report", []string{"run"}},
		{2, "report", []string{"nowhere"}},
		{0, "data prepare", []string{"--config", lm, "--out", "prepared"}},
		{0, "data prepare", []string{"--config", lm, "--out", "prepared", "--report"}},
		{1, "data prepare", []string{"--config", lm, "--out", "prepared", "--data.source", "nothing.txt"}},
		{0, "ckpt list", []string{"run"}},
		{1, "ckpt list", []string{"nowhere"}},
		{0, "ckpt show", []string{"run"}},
		{1, "ckpt show", []string{"nowhere"}},
		{0, "ckpt verify", []string{"run"}},
		{1, "ckpt verify", []string{"nowhere"}},
		{0, "ckpt compare", []string{"run", "run"}},
		{1, "ckpt compare", []string{"run", "nowhere"}},
		{1, "ckpt compare", []string{"run", "run/checkpoints/step-00000003"}},
		{0, "ckpt plot", []string{"run", "--svg", "curves.svg"}},
		{2, "ckpt plot", []string{"run", "--curve", "none"}},
		{0, "ckpt push", []string{"run", bucket}},
		{1, "ckpt push", []string{"nowhere", bucket}},
		{0, "ckpt pull", []string{bucket, "pulled"}},
		{1, "ckpt pull", []string{"file://" + filepath.Join(work, "empty"), "pulled"}},
		{0, "ckpt remote", []string{bucket}},
		{1, "ckpt remote", []string{"file://" + filepath.Join(work, "empty")}},
		{0, "config", []string{"--config", lm}},
		{0, "config", []string{"--presets"}},
		{0, "config", []string{"--reference", "dynamo"}},
		{0, "config", []string{"--schema", "dynamo"}},
		{2, "config", []string{"--reference", "none"}},
		{0, "doctor", nil},
		{0, "doctor", []string{"--exchange"}},
		{2, "doctor", []string{"--no-such-flag"}},
		{0, "", []string{"--version"}},
		{0, "", []string{"--help"}},
		{0, "train", []string{"--help"}},
		{0, "bench", []string{"--config", lm, "--ops", "--updates", "5"}},
		{2, "bench", []string{"--config", lm, "--updates", "1"}},
		{0, "check", []string{"run", "--update", "2", "--precision", "bf16"}},
		{2, "check", []string{"run", "--update", "0"}},
	} {
		args := append(append(strings.Fields(c.verb), c.args...), "--json")
		name := "snug " + strings.Join(args, " ")
		s := snug(t, "the colour red\n", args...)
		if s.code != c.code {
			t.Errorf("%s: exit code %d, want %d\n%s", name, s.code, c.code, s.err)
			continue
		}
		dec := json.NewDecoder(strings.NewReader(s.out))
		var document any
		if err := dec.Decode(&document); err != nil {
			t.Errorf("%s: stdout is no JSON document: %v\n%s", name, err, s.out)
			continue
		}
		if err := dec.Decode(new(any)); err != io.EOF {
			t.Errorf("%s: stdout holds more than one document:\n%s", name, s.out)
		}
		if key := capitalKey(document); key != "" {
			t.Errorf("%s: the document has a key %q", name, key)
		}
		x := tried[c.verb]
		x[min(c.code, 1)] = true
		tried[c.verb] = x
		if c.code == 0 || c.code == exitStopped {
			continue
		}
		if s.err == "" {
			t.Errorf("%s: a refusal without a word on stderr", name)
		}
		m, _ := document.(map[string]any)
		if text, _ := m["error"].(string); text == "" || m["exit_code"] != float64(c.code) {
			t.Errorf("%s: exit code %d, the document says %v and %v", name, c.code, m["error"], m["exit_code"])
		}
	}
	for _, verb := range everyVerb(t) {
		if x := tried[verb]; !x[1] || !x[0] && verb != "serve" { // serve ends only when it is interrupted
			t.Errorf("snug %s was not tried in success and in refusal", verb)
		}
	}
}

// capitalKey returns a key of a document that begins with a capital letter, as a field of a Go struct does if
// it is given no other name.
func capitalKey(document any) string {
	switch x := document.(type) {
	case map[string]any:
		for key, value := range x {
			if key != "" && unicode.IsUpper(rune(key[0])) {
				return key
			}
			if key := capitalKey(value); key != "" {
				return key
			}
		}
	case []any:
		for _, value := range x {
			if key := capitalKey(value); key != "" {
				return key
			}
		}
	}
	return ""
}

// TestRefused: a refusal that comes after a document is added to it, whatever the document is.
func TestRefused(t *testing.T) {
	r := refusal{Error: "too large", ExitCode: 3}
	for document, want := range map[string]string{
		`{}`:                      `{"error":"too large","exit_code":3}`,
		"{\n  \"fits\": false\n}": `{"error":"too large","exit_code":3,"fits":false}`,
		"[\n  1\n]":               `{"error":"too large","exit_code":3,"result":[1]}`,
		`null`:                    `{"error":"too large","exit_code":3,"result":null}`,
	} {
		got, err := refused([]byte(document), r)
		var compact bytes.Buffer
		if err == nil {
			err = json.Compact(&compact, got)
		}
		if err != nil || compact.String() != want {
			t.Errorf("%s: got %s, %v, want %s", document, got, err, want)
		}
	}
	if _, err := refused([]byte(`{"error": 1}`), r); err == nil {
		t.Error("a document's own error is replaced silently")
	}
}

// everyVerb lists every visible command, including its group's name.
func everyVerb(t *testing.T) (names []string) {
	t.Helper()
	parser, err := kong.New(&commands{}, kong.Name("snug"), kong.Bind(&app{}), kong.Vars{"passes": ""})
	if err != nil {
		t.Fatal(err)
	}
	for _, leaf := range parser.Model.Leaves(true) {
		words := strings.Fields(leaf.Path())
		for i, w := range words { // leaves out placeholders for arguments
			if strings.HasPrefix(w, "<") {
				words = words[:i]
				break
			}
		}
		names = append(names, strings.TrimPrefix(strings.Join(words, " "), "snug "))
	}
	return names
}

// TestEndlessValues: a value that is too long to read is not repeated in full, in either form of a message.
func TestEndlessValues(t *testing.T) {
	for _, args := range [][]string{{"plan", "--card"}, {"--json", "plan", "--card"}, {"plan", "--training.optimizer"}, {"plan", "--config"}} {
		var out, stderr bytes.Buffer
		code := Main(append(args, strings.Repeat("x", 5000)), strings.NewReader(""), &out, &stderr)
		if code != exitUsage || !strings.Contains(stderr.String(), "x...") || stderr.Len() > 2000 {
			t.Errorf("%v: code %d, %q", args, code, stderr.String())
		}
		if args[0] == "--json" && (!strings.Contains(out.String(), " characters)...x") || out.Len() > 2000) {
			t.Errorf("%v: %s", args, out.String())
		}
	}
}
