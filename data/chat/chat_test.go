package chat

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

var tokens = map[string]any{"bos_token": "<s>", "eos_token": "</s>"}

type golden struct {
	Expressions   []struct{ Source, Text, Refused string }
	Templates     map[string]string
	Conversations map[string]any
	Cases         []struct {
		Template, Conversation, Text string
		Prompt                       bool
	}
}

func readGolden(t *testing.T) (g golden) {
	raw, err := os.ReadFile(filepath.Join("testdata", "rendered.json"))
	if err == nil {
		err = json.Unmarshal(raw, &g)
	}
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// Templates render like jinja2 renders them in the environment of transformers.
func TestRendered(t *testing.T) {
	golden := readGolden(t)
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

// So do single expressions; what jinja2 refuses is refused.
func TestExpressions(t *testing.T) {
	for _, e := range readGolden(t).Expressions {
		p, err := Parse(e.Source)
		var got string
		if err == nil {
			got, err = p.Render(nil)
		}
		if e.Refused != "" && err == nil {
			t.Errorf("%s\ngot  %q\nwant a refusal: %s", e.Source, got, e.Refused)
		} else if e.Refused == "" && (err != nil || got != e.Text) {
			t.Errorf("%s: %v\ngot  %q\nwant %q", e.Source, err, got, e.Text)
		}
	}
}

// Unsupported constructs are refused by name and line.
func TestParseRefuses(t *testing.T) {
	for _, c := range []struct{ source, want string }{
		{"a\n{% call f(x) %}{% endcall %}", "line 2: {% call %} is not supported"},
		{"{% macro f() %}\n{{ caller() }}{% endmacro %}", "line 2: caller of a macro is not supported"},
		{"{% macro f() %}", "line 1: {% endmacro %} is missing"},
		{"{{ x | batch(2) }}", `line 1: the filter "batch" is not supported`},
		{"\n\n{{ x is divisibleby 3 }}", `line 3: the test "divisibleby" is not supported`},
		{"{% for a in b recursive %}{% endfor %}", "recursive"},
		{"{% if x %}", "line 1: {% endif %} is missing"},
		{"{{ x", `line 1: "{{" is not closed`},
		{"{{ x y }}", `"y" is not expected here`},
		{"{% set a, b %}{% endset %}", "want {% set NAME = VALUE %}"},
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
		{"{{ 9223372036854775807 + 1 }}", "9223372036854775807 + 1 does not fit into 64 bits"},
		{"{{ messages | selectattr('role', 'matches', 'u') | list }}", `the test matches of 1 arguments is not supported`},
		{"{{ [1] | map('indent', 2) | list }}", "the filter map with the filter indent is not supported"},
		{"{% for i in [1] %}{{ loop.cycle(1, 2) }}{% endfor %}", "loop.cycle is not supported"},
		{"{% macro f() %}{% endmacro %}{{ f.name }}", "f.name is not supported"},
		{"{{ {1: 2} }}", "a key of a mapping is not a text"},
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

// Whatever a template demands, it ends before it takes much memory.
func TestRenderIsBounded(t *testing.T) {
	grow := func(value string) string {
		return `{% set ns = namespace(x="ab", l=["ab"], d={}) %}{% for i in range(60) %}{% set ns.x = ` + value + ` %}{% endfor %}`
	}
	const steps, depth, text = "it takes more than", "levels", "it writes more than"
	for source, want := range map[string]string{
		grow("ns.x + ns.x"):                        steps,
		grow("ns.x ~ ns.x"):                        steps,
		grow("ns.x * 1000"):                        steps,
		grow("1000000000 * ns.x"):                  steps,
		grow("ns.x.replace('', ns.x)"):             steps,
		grow("ns.x | replace('a', ns.x)"):          steps,
		grow("ns.x.join(ns.x)"):                    steps,
		grow("[ns.x, ns.x] | join"):                steps,
		grow("[ns.x, ns.x, 'a'] | join(ns.x)"):     steps,
		grow("(ns.x * 9) | tojson"):                steps,
		grow("(ns.x * 9) | upper"):                 steps,
		grow("(ns.x | list + ns.x | list) | join"): steps,
		grow("ns.x.split('a') | join(ns.x * 9)"):   steps,
		grow("[ns.x, ns.x]") + "{{ ns.x == [1] }}{% set a = ns.x %}" + grow("[ns.x, ns.x]") + "{{ a == ns.x }}":                                                                                                        steps,
		`{% set ns = namespace(l=["a"]) %}{% for i in range(60) %}{% set ns.l = ns.l + ns.l %}{% endfor %}`:                                                                                                            steps,
		`{% set ns = namespace(l=[]) %}{% for i in range(1000) %}{% set ns.l = [ns.l] %}{% endfor %}{% set a = ns.l %}{% set ns.l = [] %}{% for i in range(1000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ a == ns.l }}`: depth,
		`{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}`:                                                                                                                             steps,
		`{% for i in range(100000) if range(100000) | select('gt', 5) | list %}{% endfor %}`:                                                                                                                           steps,
		`{% for i in range(100000) %}{% set x = range(100000) %}{% endfor %}`:                                                                                                                                          steps,
		`{% for i in range(10000000) %}{% for j in range(10000000) %}{% endfor %}{% endfor %}`:                                                                                                                         "range has more than 100000 numbers",
		`{% set l = range(100000) %}{% for i in l %}{% if i not in l[::-1] %}{% endif %}{% endfor %}`:                                                                                                                  steps,
		`{% set s = "a" * 1000000 %}{% for i in range(100000) %}{% if "b" in s %}{% endif %}{% endfor %}`:                                                                                                              steps,
		`{% set s = "a" * 1000000 %}{% for i in range(100000) %}{% if s.find("b") > 0 %}{% endif %}{% endfor %}`:                                                                                                       steps,
		`{% set s = "a" * 1000000 %}{% for i in range(100000) %}{% if s | length == 1 %}{% endif %}{% endfor %}`:                                                                                                       steps,
		`{% set s = "a" * 1000000 %}{% for i in range(100000) %}{% if s[0] == s[-1] %}{% endif %}{% endfor %}`:                                                                                                         steps,
		`{% set s = "a" * 1000000 %}{% set t = s ~ "" %}{% for i in range(100000) %}{% if s != t %}{% endif %}{% endfor %}`:                                                                                            steps,
		`{% set s = "a" * 1000000 %}{% for i in range(100000) %}{% if s.strip("ba") %}{% endif %}{% endfor %}`:                                                                                                         steps,
		`{% set s = "a" * 1000000 %}{% for i in range(100000) %}{% if s.startswith(s) %}{% endif %}{% endfor %}`:                                                                                                       steps,
		`{% set s = "a" * 1000000 %}{% for i in range(100) %}{{ s }}{% endfor %}`:                                                                                                                                      text,
		`{% for i in range(100000) %}{% for j in range(100) %}{% set x %}` + strings.Repeat("a", 1000) + `{% endset %}{% endfor %}{% endfor %}`:                                                                        steps,
		`{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}`:                                                                                                                                                              "more than 100 macros call one another",
		`{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}`:                                                                                                                   steps,
		`{{ x[[` + strings.Repeat("1,", 20) + `]] }}`:                                                                                                                                                                  "x is not defined, and has no a list",
	} {
		p, err := Parse(source)
		if err != nil {
			t.Fatalf("%s: %v", source, err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := p.Render(nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", source, err, want)
		}
		runtime.ReadMemStats(&after)
		if n := (after.TotalAlloc - before.TotalAlloc) >> 20; n > 1<<10 {
			t.Errorf("%s: %d MiB were allocated", source, n)
		}
	}
}

// The answers of a conversation are found in its text; if a template changes earlier
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
			_, _ = p.Render(map[string]any{"messages": []any{&dict{[]string{"role"}, map[string]any{"role": "user"}}}}) // no panic is all that is asked
		}
	})
}
