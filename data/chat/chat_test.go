package chat

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var tokens = map[string]any{"bos_token": "<s>", "eos_token": "</s>"}

// Templates render as jinja2 renders them in the environment of transformers.
func TestRendered(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("testdata", "rendered.json"))
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Templates     map[string]string
		Conversations map[string]any
		Cases         []struct {
			Template, Conversation, Text string
			Prompt                       bool
		}
	}
	if err := json.Unmarshal(raw, &golden); err != nil {
		t.Fatal(err)
	}
	for _, c := range golden.Cases {
		p, err := Parse(golden.Templates[c.Template])
		if err != nil {
			t.Fatalf("%s: %v", c.Template, err)
		}
		messages, err := Read(golden.Conversations[c.Conversation])
		if err != nil {
			t.Fatal(err)
		}
		f := &Format{Template: p, Tokens: tokens}
		got, err := f.Render(messages, c.Prompt)
		if err != nil || got != c.Text {
			t.Errorf("%s of %s, prompt %v: %v\ngot  %q\nwant %q", c.Template, c.Conversation, c.Prompt, err, got, c.Text)
		}
	}
}

// What is not supported is refused by name and line.
func TestParseRefuses(t *testing.T) {
	for _, c := range []struct{ source, want string }{
		{"a\n{% macro f(x) %}{% endmacro %}", "line 2: {% macro %} is not supported"},
		{"{{ x | batch(2) }}", `line 1: the filter "batch" is not supported`},
		{"\n\n{{ x is divisibleby 3 }}", `line 3: the test "divisibleby" is not supported`},
		{"{% for a in b recursive %}{% endfor %}", "recursive"},
		{"{% if x %}", "line 1: {% endif %} is missing"},
		{"{{ x", `line 1: "{{" is not closed`},
		{"{{ x y }}", `"y" is not expected here`},
		{"{% set a, b = 1, 2 %}", "of more than one name"},
		{"{{ x ? y }}", `cannot read "? y`},
		{"{% break %}", "outside of a loop"},
		{"{{ " + strings.Repeat("(", 1000) + "1" + strings.Repeat(")", 1000) + " }}", "more than 200 levels"},
		{strings.Repeat("{% if x %}", 1000), "more than 200 levels"},
	} {
		if _, err := Parse(c.source); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got %v, want %q", c.source, err, c.want)
		}
	}
	for _, c := range []struct{ source, want string }{
		{"\n{{ strftime_now('%Y') }}", `line 2: the function "strftime_now" is not supported`},
		{"{{ messages[0].x.y }}", "x is not defined, and has no y"},
		{"{{ raise_exception('no') }}", "the template refuses the conversation: no"},
		{"{{ messages }}", "a list is printed, which is not supported"},
		{"{{ messages | tojson }}", "the filter tojson of a list is not supported"},
		{"{{ 'a' - 1 }}", "- does not take a text and a number"},
	} {
		p, err := Parse(c.source)
		if err != nil {
			t.Fatal(err)
		}
		f := &Format{Template: p}
		if _, err := f.Render([]Message{{Role: "user"}}, false); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got %v, want %q", c.source, err, c.want)
		}
	}
}

// The answers of a conversation are found in its text; where a template changes earlier
// answers, each is a text of its own.
func TestExamples(t *testing.T) {
	p, err := Parse(ChatML)
	if err != nil {
		t.Fatal(err)
	}
	f := &Format{Template: p}
	talk := []Message{{Role: "user", Content: "a"}, {Role: Assistant, Content: "b"}, {Role: "user", Content: "c"}, {Role: Assistant, Content: "d", Untrained: true}}
	got, err := f.Examples(talk)
	if err != nil || len(got) != 1 || len(got[0].Answers) != 1 {
		t.Fatalf("got %+v, %v", got, err)
	}
	a := got[0].Answers[0]
	if answer := a.Until[len(a.Before):]; answer != "b<|im_end|>\n" || !strings.HasSuffix(a.Before, "<|im_start|>assistant\n") || !strings.HasPrefix(got[0].Text, a.Until) {
		t.Errorf("the answer is %q after %q", answer, a.Before)
	}
	if f.Template, err = Parse("{% for m in messages %}[{{ m.role }}]{{ m.content if loop.last or m.role == 'user' }};{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"); err != nil {
		t.Fatal(err)
	}
	talk[3].Untrained = false
	got, err = f.Examples(talk)
	if err != nil || len(got) != 2 || got[0].Text != "[user]a;[assistant]b;" || got[1].Answers[0].Before != "[user]a;[assistant];[user]c;[assistant]" {
		t.Errorf("got %+v, %v", got, err)
	}
	if f.Template, err = Parse("{% for m in messages %}{{ m.content }};{% endfor %}{% if add_generation_prompt %}A:{% endif %}"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Examples(talk); err == nil || !strings.Contains(err.Error(), "message 1: the template does not write an answer after what it writes to prompt for one") {
		t.Errorf("got %v", err)
	}
}

func TestReadRefuses(t *testing.T) {
	for text, want := range map[string]string{
		`{}`: "want a list of messages", `[]`: "want a list of messages", `[1]`: "message 0: want an object",
		`[{"role": "tool", "content": ""}]`:                                                `role is "tool", want system`,
		`[{"role": "user"}]`:                                                               "content is missing",
		`[{"role": "user", "content": 3}]`:                                                 "content is no text",
		`[{"role": "assistant", "content": "", "tool_calls": [1]}]`:                        "tool_calls is not supported",
		`[{"role": "assistant", "content": "", "weight": 0.5}]`:                            "weight is 0.5, want 0 or 1",
		`[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": ""}}]}]`: "part 0 is no text",
	} {
		d := json.NewDecoder(strings.NewReader(text))
		d.UseNumber()
		var v any
		if err := d.Decode(&v); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(v); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}

// A template is where transformers looks for it.
func TestLoad(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Load(dir, ""); err == nil || !strings.Contains(err.Error(), "has no chat template") {
		t.Errorf("got %v", err)
	}
	write(configFile, `{"bos_token": {"content": "<s>"}, "eos_token": "</s>", "pad_token": null, "chat_template": [{"name": "tool", "template": "t"}, {"name": "default", "template": "{{ bos_token }}{{ eos_token }}"}]}`)
	f, err := Load(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	if s, err := f.Render(nil, false); err != nil || s != "<s></s>" {
		t.Errorf("rendered %q, %v", s, err)
	}
	write(TemplateFile, "{{ pad_token }}own")
	if f, err = Load(dir, ""); err != nil {
		t.Fatal(err)
	}
	if s, err := f.Render(nil, false); err != nil || s != "own" {
		t.Errorf("rendered %q, %v", s, err)
	}
	if f, err = Load(dir, "chatml"); err != nil || f.Source != ChatML {
		t.Errorf("%v", err)
	}
	write(TemplateFile, "\n{% import x %}")
	if _, err := Load(dir, ""); err == nil || !strings.Contains(err.Error(), TemplateFile+": chat template, line 2: {% import %} is not supported") {
		t.Errorf("got %v", err)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{ChatML, "{% for a in messages[1:] if a %}{{ a['b'] | trim }}{% else %}{% endfor %}", "{{ {'a': [1, (2,)]}['a'][::-1] }}", "{%- set n = namespace(a=1) -%}{# #}{{ n.a ~ -1 }}"} {
		f.Add(s)
	}
	f.Fuzz(func(_ *testing.T, source string) {
		if p, err := Parse(source); err == nil {
			_, _ = p.Render(map[string]any{"messages": []any{map[string]any{"role": "user", "content": "x"}}}) // no panic is all that is asked
		}
	})
}
