package dynamo

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/data"
	"github.com/snug-ml/snug/train"
	"github.com/snug-ml/snug/train/rundir"
)

// TestSpans: the tokens of an answer are those of its characters, wherever it is. An answer that is cut off
// is detected.
func TestSpans(t *testing.T) {
	c := load(t, small)
	tok := testTokens(t, c)
	alphabet := []string{"func", " ", "(", "Buffer", "é", "日本", "  ", "*", "err", "\n", "x1"}
	rng := rand.New(rand.NewPCG(1, 2))
	cut := 0
	for range 2000 {
		var parts []string
		for range 1 + rng.IntN(12) {
			parts = append(parts, alphabet[rng.IntN(len(alphabet))])
		}
		from := rng.IntN(len(parts))
		to := from + 1 + rng.IntN(len(parts)-from)
		x := &text{Question: "What is it?", Input: strings.Join(parts, ""), Output: strings.Join(parts[from:to], ""), Start: len(strings.Join(parts[:from], ""))}
		answer := strings.Trim(x.Output, " ")
		q, err := tok.question(x, 40)
		if err != nil {
			t.Fatal(err)
		}
		if len(q.ids) > 40 || q.ids[0] != tok.first || q.ids[len(q.ids)-1] != tok.last {
			t.Fatalf("%q: ids %v", x.Input, q.ids)
		}
		if !q.ok {
			cut++
			if !q.cut && answer != "" {
				t.Errorf("%q: the answer %q is lost in a text that is whole", x.Input, x.Output)
			}
			continue
		}
		if q.start < q.context || q.end < q.start {
			t.Fatalf("%q: answer at tokens %d to %d, the text starts at %d", x.Input, q.start, q.end, q.context)
		}
		covered := x.Input[q.spans[q.start-q.context].Start:q.spans[q.end-q.context].End]
		if !strings.Contains(covered, answer) {
			t.Errorf("%q: the tokens of %q cover %q", x.Input, x.Output, covered)
		}
		// The span has no token too many.
		first, last := q.spans[q.start-q.context], q.spans[q.end-q.context]
		at := x.Start + strings.Index(x.Output, answer)
		if first.End <= at || last.Start >= at+len(answer) {
			t.Errorf("%q: the tokens of %q reach beyond it: %q", x.Input, x.Output, covered)
		}
	}
	if cut == 0 {
		t.Error("no answer was cut off: the test does not see what happens then")
	}
}

// TestAnswersAreFoundAgain: an answer among the words of a signature is found again from its scores.
func TestAnswersAreFoundAgain(t *testing.T) {
	c := load(t, small)
	tok := testTokens(t, c)
	x := text{Question: "What does Write return?", Input: "func (b *Buffer) Write(p []byte) (n int, err error)", Output: "(n int, err error)", Start: 33}
	q, err := tok.question(&x, 64)
	if err != nil || !q.ok {
		t.Fatal(err, q)
	}
	start, end := make([]float32, 64), make([]float32, 64)
	start[q.start], end[q.end] = 1, 1
	if from, to := best(start, end); q.between(&x, from, to) != x.Output {
		t.Errorf("tokens %d to %d are %q", from, to, q.between(&x, from, to))
	}
	end[1] = 9 // before the start, so this is not a span
	if from, to := best(start, end); to < from {
		t.Errorf("the answer ends at %d before it starts at %d", to, from)
	}
	if got := q.between(&x, 0, 3); got != "" {
		t.Errorf("a span outside of the text is %q", got)
	}
}

func TestByteOffset(t *testing.T) {
	if at, err := byteOffset("über alles", 5, "alles"); err != nil || at != 6 {
		t.Errorf("%d, %v", at, err)
	}
	for _, c := range []struct {
		at     int
		answer string
	}{{4, "alles"}, {50, "alles"}, {-1, "über"}} {
		if _, err := byteOffset("über alles", c.at, c.answer); err == nil {
			t.Errorf("%q at %d is taken", c.answer, c.at)
		}
	}
}

func TestSplitName(t *testing.T) {
	for name, want := range map[string]string{
		"parseHTTPVersion2": "parse http version 2", "ReadFrom": "read from", "x": "x", "URL": "url", "IPv6Addr": "i pv 6 addr", "sha256Sum": "sha 256 sum", "a_b": "", "naïve": "",
	} {
		if got := strings.Join(splitName(name), " "); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

func write1(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestFiles: files of every format are read as texts, and errors are reported with their position.
func TestFiles(t *testing.T) {
	squadFile := write1(t, "s.json", `{"data":[{"title":"T","paragraphs":[{"context":"É is a letter","qas":[{"id":"7","question":" Which? ","answers":[{"text":"letter","answer_start":7},{"text":"a letter","answer_start":5}]},{"id":"8","question":"Why?","answers":[],"is_impossible":true}]}]}]}`)
	badSquad := write1(t, "s.json", `{"data":[{"title":"T","paragraphs":[{"context":"abc","qas":[{"id":"7","question":"?","answers":[{"text":"x","answer_start":1}]}]}]}]}`)
	en, de := write1(t, "a.en", "one\ntwo\n"), write1(t, "a.de", "eins\nzwei\n")
	short := write1(t, "b.de", "eins\n")
	torn := write1(t, "torn.en", "f\xffne\ntwo\n")
	tornSquad := write1(t, "s.json", "{\"data\":[{\"title\":\"T\",\"paragraphs\":[{\"context\":\"\xff\",\"qas\":[]}]}]}")
	replace := config.Data{ReplaceInvalid: true}
	for _, c := range []struct {
		task  string
		t     Task
		d     config.Data
		want  []text
		wrong string
	}{
		{task: nameTranslation, t: Task{Format: "lines", Train: []string{torn, de}}, wrong: "set data.replace_invalid"},
		{task: nameTranslation, t: Task{Format: "lines", Train: []string{torn, de}}, d: replace, want: []text{{Input: "f\uFFFDne", Output: "eins"}, {Input: "two", Output: "zwei"}}},
		{task: nameTranslation, t: Task{Format: "lines", Train: []string{en, de}}, d: config.Data{MaxRecord: 4}, wrong: "a.de:1: line longer than 4 bytes; raise data.max_record"},
		{task: nameTranslation, t: Task{Format: "lines", Train: []string{write1(t, "cr.en", "one\rtwo\r"), de}}, wrong: "cr.en: its lines end with carriage returns only"},
		{task: nameQA, t: Task{Format: "squad", Train: []string{tornSquad}}, wrong: "set data.replace_invalid"},
		{task: nameCodeGeneration, t: Task{Format: "records", Input: "prompt", Output: "code", Train: []string{write1(t, "x.json", `{"n":1,"rows":[{"prompt":"p","code":"c"}]}`)}}, d: config.Data{ArrayKey: "rows"}, want: []text{{Input: "p", Output: "c"}}},
		{task: nameCodeGeneration, t: Task{Format: "records", Input: "prompt", Output: "code", Train: []string{write1(t, "x.csv", "prompt,code\np\xff,c\n")}}, d: replace, want: []text{{Input: "p\uFFFD", Output: "c"}}},
		{task: nameCodeGeneration, t: Task{Format: "records", Input: "prompt", Output: "code", Train: []string{write1(t, "x.jsonl", `{"prompt":"p","code":"c"}`+"\n")}}, d: config.Data{MaxRecord: 8}, wrong: "raise data.max_record"},
		{task: nameSentiment, t: Task{Format: "records", NoHeader: true, Input: "1", Output: "2", Train: []string{write1(t, "x.tsv", "fine film\t1\nbad\t0\n")}},
			want: []text{{Input: "fine film", Label: 1}, {Input: "bad"}}},
		{task: nameSentiment, t: Task{Format: "records", NoHeader: true, Input: "1", Output: "2", Train: []string{write1(t, "x.tsv", "fine film\t2\n")}}, wrong: "x.tsv:1: label 2, want 0 or 1"},
		{task: nameCodeGeneration, t: Task{Format: "records", Input: "prompt", Output: "code", Train: []string{write1(t, "x.json", `[{"prompt":"p","code":"c","n":1}]`)}}, want: []text{{Input: "p", Output: "c"}}},
		{task: nameCodeGeneration, t: Task{Format: "records", Input: "prmpt", Output: "code", Train: []string{write1(t, "x.json", `[{"prompt":"p","code":"c"}]`)}}, wrong: "(tasks.code_generation.input_field chooses the field)"},
		{task: nameQA, t: Task{Format: "records", Input: "context", Output: "answer", Train: []string{write1(t, "q.jsonl", `{"context":"a b","text":"b"}`+"\n")}}, wrong: `q.jsonl:1: no field "answer" (tasks.qa.output_field chooses the field), no field "question", no field "start_position"; it has context, text`},
		{task: nameQA, t: Task{Format: "records", Input: "context", Output: "answer", Train: []string{write1(t, "q.jsonl", `{"context":"a b","answer":"b","question":"?","start_position":0}`+"\n")}}, wrong: `q.jsonl:1: the answer "b" is not at character 0`},
		{task: nameQA, t: Task{Format: "records", Input: "context", Output: "answer", Train: []string{write1(t, "q.jsonl", `{"context":"a b","answer":"b","question":"?","start_position":[2]}`+"\n")}}, wrong: `q.jsonl:1: field "start_position": want a whole number, found a list`},
		{task: nameQA, t: Task{Format: "records", Input: "context", Output: "answer", Train: []string{write1(t, "q.jsonl", `{"context":"a b","answer":"b","question":"?","start_position":2}`+"\n")}}, want: []text{{Input: "a b", Question: "?", Output: "b", Start: 2}}},
		{task: nameSentiment, t: Task{Format: "records", Input: "text", Output: "label", Train: []string{write1(t, "s.jsonl", `{"text":"a","label":"good"}`+"\n")}}, wrong: `want a whole number, found a text ("good") (tasks.sentiment.output_field chooses the field)`},
		{task: nameQA, t: Task{Format: "squad", Train: []string{squadFile}}, want: []text{{Input: "É is a letter", Question: "Which?", Output: "letter", Start: 8, Others: []string{"a letter"}}}},
		{task: nameQA, t: Task{Format: "squad", Train: []string{badSquad}}, wrong: "paragraph 1, question 7: the answer \"x\" is not at character 1"},
		{task: nameTranslation, t: Task{Format: "lines", Train: []string{en, de}}, want: []text{{Input: "one", Output: "eins"}, {Input: "two", Output: "zwei"}}},
		{task: nameTranslation, t: Task{Format: "lines", Train: []string{en, short}}, wrong: "has 2 lines"},
		{task: nameTranslation, t: Task{Format: "lines", Train: []string{en}}, wrong: "want pairs"},
	} {
		got, err := readFiles(context.Background(), &c.d, c.task, &c.t, c.t.Train, t.Logf)
		if c.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("got %v, want an error with %q", err, c.wrong)
			} else if strings.Count(err.Error(), c.t.Train[0]) > 1 {
				t.Errorf("%v: its place is given twice", err)
			}
			continue
		}
		if err != nil {
			t.Error(err)
			continue
		}
		for i := range got {
			got[i].Where, got[i].Group = "", ""
		}
		if a, b := asJSON(t, got), asJSON(t, c.want); a != b {
			t.Errorf("%s: %s, want %s", c.task, a, b)
		}
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// goFile is a Go source tree of one file.
const goFile = `package p

import (
	"errors"
	"fmt"
)

// HasPrefix reports whether s begins with prefix.
func (c *Client) HasPrefix(s, prefix string) (ok bool, err error) {
	if len(prefix) == 0 {
		return false, errors.New("the prefix is empty")
	}
	fmt.Println("looking for a prefix")
	return s[:len(prefix)] == prefix, nil
}
`

// TestGoTasks: the tasks of a Go source tree are as documented.
func TestGoTasks(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "src", "p"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "src", "p", "p.go"), []byte(goFile), 0o644); err != nil {
		t.Fatal(err)
	}
	tree, err := data.OpenGoTree(data.GoTreeOptions{Root: root})
	if err != nil {
		t.Fatal(err)
	}
	got, err := goTasks(context.Background(), tree, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	const signature = "func (c *Client) HasPrefix(s, prefix string) (ok bool, err error)"
	ask := func(question, answer string, start int) text {
		if !strings.HasPrefix(signature[start:], answer) {
			t.Fatalf("%q is not at %d", answer, start)
		}
		return text{Question: question, Input: signature, Output: answer, Start: start}
	}
	want := map[string][]text{
		nameSentiment: {{Input: "the prefix is empty"}, {Input: "looking for a prefix", Label: 1}},
		nameQA: {
			ask("What does HasPrefix return?", "(ok bool, err error)", 45), ask("Which type has the method HasPrefix?", "*Client", 8),
			ask("What is the type of s?", "string", 37), ask("What is the first parameter of HasPrefix?", "s", 27),
			ask("What is the type of prefix?", "string", 37), ask("What is the second parameter of HasPrefix?", "prefix", 30),
		},
		nameSummarization: {{
			Input:  `// reports whether s begins with prefix. func(s, prefix string) (ok bool, err error) { if len(prefix) == 0 { return false, errors.New("the prefix is empty") } fmt.Println("looking for a prefix") return s[:len(prefix)] == prefix, nil }`,
			Output: "has prefix",
		}},
		nameCodeGeneration: {{Input: "HasPrefix reports whether s begins with prefix.", Output: signature}},
		nameTranslation:    {{Input: "HasPrefix", Output: "has prefix"}},
	}
	for _, name := range taskNames {
		for i := range got[name] {
			got[name][i].Where, got[name][i].Group = "", ""
			if name == nameTranslation && got[name][i].Input != "HasPrefix" {
				t.Logf("translation: %q", got[name][i].Input)
			}
		}
		own := slices.DeleteFunc(slices.Clone(got[name]), func(x text) bool { return name == nameTranslation && x.Input != "HasPrefix" })
		if a, b := asJSON(t, own), asJSON(t, want[name]); a != b {
			t.Errorf("%s:\n%s, want\n%s", name, a, b)
		}
	}
}

// TestCut: no held-out text is trained on, and a group is on one side.
func TestCut(t *testing.T) {
	c := load(t, small, "--data.held_out_fraction", "0.3")
	var xs []text
	for i := range 300 {
		xs = append(xs, text{Input: strings.Repeat("x", i%199), Group: strings.Repeat("g", i%40)})
	}
	task := Task{Examples: 80, HeldOut: 20}
	s := cut(c, &task, xs, nil)
	if len(s.train) != 80 || len(s.held) != 20 || s.repeated == 0 {
		t.Errorf("%d and %d texts, %d dropped", len(s.train), len(s.held), s.repeated)
	}
	known := map[string]bool{}
	for _, x := range cut(c, &Task{}, xs, nil).train {
		known[x.key()] = true
	}
	for _, x := range s.held {
		if known[x.key()] {
			t.Errorf("%q is trained on and held out", x.Input)
		}
	}
	again := cut(c, &task, xs, nil)
	if asJSON(t, again.train) != asJSON(t, s.train) {
		t.Error("another split the second time")
	}
}

// testTable returns a table with n texts of a task.
func testTable(t *testing.T, c *config.Config, number, n int, use usage) *table {
	t.Helper()
	var xs []text
	for i := range n {
		xs = append(xs, text{Input: strings.Repeat("write the bytes ", 1+i%2) + string(rune('a'+i)), Question: map[bool]string{true: "What?"}[config.Of[Model](c).Tasks[number] == nameQA],
			Output: "write", Label: i % 2, Where: "test"})
	}
	tab, err := newTable(c, testTokens(t, c), number, xs, c.Data.SeqLen, use)
	if err != nil {
		t.Fatal(err)
	}
	return tab
}

// TestCurriculum: the stream of phase 3 continues after a position as if it had not stopped, batches of one
// task are replaced by mixed ones over time, and every task gets its turn.
func TestCurriculum(t *testing.T) {
	c := load(t, small, "--phases.stage", stageJoint, "--phases.joint_steps", "200", "--training.gradient_accumulation_steps", "2")
	open := func() *dataLoader {
		var ones []*table
		for i := range taskNames {
			ones = append(ones, testTable(t, c, i, 30, usage{perExample: true, training: true}))
		}
		f, err := curriculum(c, ones, ones, 10, 2)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(f.Close)
		return f
	}
	next := func(f *dataLoader) train.Update {
		u, err := f.Next()
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	f := open()
	var cursor []byte
	var after []train.Update
	var positions []string
	mixed := [2]int{}
	seen := map[string]int{}
	for u := range 200 {
		x := next(f)
		for _, v := range x.Variants {
			seen[v]++
			if v == variantMixed {
				mixed[u/100]++
			}
		}
		if u == 120 {
			cursor = []byte(asJSON(t, f.Position()))
		}
		if u > 120 {
			after, positions = append(after, x), append(positions, asJSON(t, f.Position()))
		}
	}
	if mixed[0] >= mixed[1] || mixed[0] < 40 || mixed[1] > 160 {
		t.Errorf("%d batches of all tasks in the first half, %d in the second", mixed[0], mixed[1])
	}
	for _, name := range taskNames {
		if seen[name] < 20 {
			t.Errorf("%s came %d times", name, seen[name])
		}
	}
	g := open()
	if err := g.Seek(cursor); err != nil {
		t.Fatal(err)
	}
	for i, want := range after {
		got := next(g)
		if !slices.Equal(got.Variants, want.Variants) || got.Weight != want.Weight || asJSON(t, g.Position()) != positions[i] {
			t.Fatalf("update %d after the cursor: %v %v, want %v %v", i, got.Variants, got.Weight, want.Variants, want.Weight)
		}
	}
}

func TestShares(t *testing.T) {
	for _, c := range []struct{ n, rows int }{{5, 32}, {3, 10}, {1, 4}, {5, 5}} {
		got, sum := shares(c.n, c.rows), 0
		for _, x := range got {
			sum += x
		}
		if sum != c.rows || slices.Max(got)-slices.Min(got) > 1 {
			t.Errorf("%d rows among %d: %v", c.rows, c.n, got)
		}
	}
}

func TestRoutingMetrics(t *testing.T) {
	r := newRouterMetrics([]string{"a", "b"})
	r.see(0, []float32{.9, .1})
	r.see(0, []float32{.5, .5}) // a tie goes to the first task
	r.see(1, []float32{.6, .4})
	r.see(1, []float32{0, 1})
	m := r.metrics()
	h := func(p float64) float64 { return -p*math.Log(p) - (1-p)*math.Log(1-p) }
	for k, want := range map[string]float64{
		"routing_accuracy": .75, "routing_recall_a": 1, "routing_recall_b": .5, "usage_a": .5, "load_balance": 1,
		"routing_entropy": (h(.9) + h(.5) + h(.6)) / 4, "routing_confidence": (.9 + .5 + .6 + 1) / 4,
	} {
		if math.Abs(m[k]-want) > 1e-6 {
			t.Errorf("%s is %v, want %v", k, m[k], want)
		}
	}
	if r.matrix.Counts[1][0] != 1 || r.matrix.Counts[0][1] != 0 {
		t.Errorf("confusion %v", r.matrix.Counts)
	}
}

// TestReadiness: a phase does not start until the phases it builds on are done and good enough.
func TestReadiness(t *testing.T) {
	dir := t.TempDir()
	c := load(t, small, "--phases.min_gain", "0.05", "--model.tasks", "[sentiment,qa]")
	list := phases(c, dir)
	var names []string
	for _, p := range list {
		names = append(names, p.Name)
	}
	if want := []string{"phase0-encoder", "phase1-sentiment", "phase1-qa", "phase2-router", "phase3-joint"}; !slices.Equal(names, want) {
		t.Fatalf("phases %v, want %v", names, want)
	}
	done := func(stage string, value, gain float64) {
		d := filepath.Join(dir, folder(stage))
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
		run, err := rundir.Look(d)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join((&result{Stage: stage, Goal: "accuracy", Value: value, Gain: gain, Metrics: map[string]float64{}}).save(run), run.Close()); err != nil {
			t.Fatal(err)
		}
	}
	check := func(i int, want string) {
		t.Helper()
		switch err := list[i].Ready(); {
		case want == "" && err != nil:
			t.Errorf("%s: %v", names[i], err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: got %v, want an error with %q", names[i], err, want)
		}
	}
	check(1, "phase0-encoder is not done")
	done(stageEncoder, 6.29, .04)
	check(1, "the encoder predicts held-out tokens with accuracy 6.29, 0.04 better than token frequencies; phases.min_encoder_gain requires 0.1: train it again (--phase 0 --fresh) with a lower phases.encoder_lr (now 0.001)")
	check(3, "phases.min_encoder_gain")
	done(stageEncoder, 4, 1)
	check(1, "")
	check(3, "phase1-sentiment is not done")
	done(nameSentiment, .8, .3)
	done(nameQA, .3, .01)
	check(3, "task qa: accuracy is 0.3, 0.01 better than its baseline; phases.min_gain requires 0.05: train it longer (tasks.qa.steps)")
	done(nameQA, .3, .1)
	check(3, "")
	check(4, "phase2-router is not done")
	done(stageRouter, .85, .6)
	check(4, "the router finds the task of 85.0 % of the texts, phases.min_routing requires 90.0 %")
	done(stageRouter, .95, .6)
	check(4, "")
	for _, p := range phases(load(t, small, "--phases.run", "2"), dir) {
		if p.Skip != (p.Name != "phase2-router") {
			t.Errorf("phase 2 alone: %s is skipped: %t", p.Name, p.Skip)
		}
	}
	if got := phases(load(t, small, "--phases.stage", "qa"), dir); got != nil {
		t.Errorf("the run of a phase has phases: %v", got)
	}
}

func TestConfigRefusals(t *testing.T) {
	for _, c := range []struct{ flag, value, want string }{
		{"--training.max_steps", "77", "each phase has its own: set phases.encoder_steps"},
		{"--training.learning_rate", "0.5", "each phase has its own: set phases.encoder_lr"},
		{"--model.tasks", "[qa,qa]", "qa is named twice"},
		{"--tasks.qa.length", "25", "25 exceeds data.seq_len (24)"},
		{"--tasks.translation.beams", "3", "3 does not divide training.batch_size (10)"},
		{"--tasks.sentiment.format", "squad", "squad files hold questions"},
		{"--router.gumbel", "true", "samples the mixture of soft dispatch"},
		{"--model.folder", "nowhere", "nowhere"},
		{"--data.segment_mask", "true", "--data.segment_mask: does nothing for dynamo, which predicts masked tokens in full windows"},
	} {
		_, err := tryLoad(t, small, c.flag, c.value)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: got %v, want an error with %q", c.flag, c.value, err, c.want)
		}
	}
	// These settings depend on other keys.
	encoder := []string{"--model.folder", "../moderation/testdata/curve/bert", "--data.seq_len", "16", "--tasks.translation.length", "16"}
	for _, c := range [][]string{
		{"--data.documents: does nothing for dynamo, which reads no documents with model.folder", "--data.documents", "line"},
		{"--data.overlap: does nothing for dynamo, which reads no documents with model.folder", "--data.overlap", "4"},
		{"--data.text_field: does nothing for dynamo, which reads no documents with model.folder", "--data.text_field", "body"},
		{"--data.split_by: examples of tasks are held out one by one", "--data.split_by", "folder", "--tasks.qa.train", "x.json"},
	} {
		want, flags := c[0], c[1:]
		text := strings.Replace(small, "d_model: 32, n_layers: 2, n_heads: 4, d_ff: 64, max_seq_len: 24, vocab_size: 300, ", "", 1)
		if _, err := tryLoad(t, text, append(flags, encoder...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v, want an error with %q", flags, err, want)
		}
	}
}

// TestGoTreeIsTheSameFromTheCache: the run that reads the source tree trains on the same texts as later runs,
// which read them from the cache.
func TestGoTreeIsTheSameFromTheCache(t *testing.T) {
	if testing.Short() {
		t.Skip("reads the whole Go source tree")
	}
	dir := t.TempDir()
	read := func() map[string][]text {
		r := &reader{cache: dir, log: func(string, ...any) {}}
		tree, err := r.goTree(t.Context())
		if err == nil {
			err = r.keep()
		}
		if err != nil {
			t.Fatal(err)
		}
		return tree
	}
	cold, warm := read(), read()
	if !reflect.DeepEqual(cold, warm) {
		t.Error("the texts that were read differ from those that were kept")
	}
}
