package dynamo

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/data"
	"github.com/snug-ml/snug/internal/few"
	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/internal/strictjson"
)

// files reads a task's examples from files according to the section "data".
type files struct {
	*config.Data
	log      func(string, ...any)
	replaced int   // number of bytes of invalid UTF-8
	most     int64 // maximum size in bytes of a file that is read as a whole; 0 means wholeLimit
}

// readFiles reads a task's examples from the configured files.
func readFiles(ctx context.Context, d *config.Data, name string, t *Task, patterns []string, log func(string, ...any)) (out []text, err error) {
	f := &files{Data: d, log: log}
	switch t.Format {
	case "squad":
		out, err = f.squad(patterns)
	case "lines":
		out, err = f.pairs(patterns)
	default:
		out, err = f.records(ctx, name, t, patterns)
	}
	if f.replaced > 0 {
		log("data: %s: invalid UTF-8 is replaced by U+FFFD (data.replace_invalid): %s", name, size.Of(f.replaced, "byte"))
	}
	return out, err
}

func (f *files) records(ctx context.Context, name string, t *Task, patterns []string) ([]text, error) {
	in, err := data.OpenFiles(patterns, data.Options{
		NoHeader: t.NoHeader, ArrayKey: f.ArrayKey, MaxRecord: int64(f.MaxRecord), ReplaceInvalid: f.ReplaceInvalid,
	}, f.CacheDir)
	if err != nil {
		return nil, err
	}
	in.TellLeft(f.log)
	var out []text
	for r, err := range in.Records() {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		f.replaced += r.Repaired()
		x, err := fromRecord(name, t, r)
		if err != nil {
			return nil, err
		}
		out = append(out, x)
	}
	return out, nil
}

// These are the fields of a question besides the configured ones.
const (
	fieldQuestion = "question"
	fieldStart    = "start_position" // start of the answer, in characters
)

func fromRecord(name string, t *Task, r data.Record) (x text, err error) {
	if err := complete(name, t, r); err != nil {
		return x, err
	}
	chosen := func(key string, err error) error {
		if err == nil {
			return nil
		}
		return fmt.Errorf("%w (%s)", err, chooses(name, key))
	}
	x = text{Where: r.Where(), Group: r.Where()}
	if x.Input, err = r.Text(t.Input); err != nil {
		return x, chosen("input_field", err)
	}
	if kindOf(name) == classify {
		label, err := r.Int(t.Output)
		if err == nil && (label < 0 || label >= labels) {
			err = fmt.Errorf("%s: label %d, want 0 or 1", r.Where(), label)
		}
		x.Label = int(label)
		return x, chosen("output_field", err)
	}
	if x.Output, err = r.Text(t.Output); err != nil {
		return x, chosen("output_field", err)
	}
	if kindOf(name) == point {
		if x.Question, err = r.Text(fieldQuestion); err != nil {
			return x, err
		}
		start, err := r.Int(fieldStart)
		if err != nil {
			return x, err
		}
		if x.Start, err = byteOffset(x.Input, int(start), x.Output); err != nil {
			return x, fmt.Errorf("%s: %w", r.Where(), err)
		}
	}
	return x, nil
}

// complete reports every field of an example that a record lacks.
func complete(name string, t *Task, r data.Record) error {
	var lacks []string
	lack := func(field, hint string) {
		if !r.Has(field) {
			lacks = append(lacks, fmt.Sprintf("no field %q%s", field, hint))
		}
	}
	lack(t.Input, " ("+chooses(name, "input_field")+")")
	lack(t.Output, " ("+chooses(name, "output_field")+")")
	if kindOf(name) == point {
		lack(fieldQuestion, "")
		lack(fieldStart, "")
	}
	if lacks == nil {
		return nil
	}
	return fmt.Errorf("data: %s: %s; it has %s", r.Where(), strings.Join(lacks, ", "), few.Of(r.Fields()))
}

// chooses names the setting of a task that chooses a field.
func chooses(name, key string) string { return fmt.Sprintf("tasks.%s.%s chooses the field", name, key) }

// byteOffset converts the position of an answer from characters to bytes and checks that the answer is there.
func byteOffset(s string, characters int, answer string) (int, error) {
	at, rest := 0, s
	for range characters {
		_, n := utf8.DecodeRuneInString(rest)
		if n == 0 {
			return 0, fmt.Errorf("the answer should start at character %d of %d", characters, utf8.RuneCountInString(s))
		}
		at, rest = at+n, rest[n:]
	}
	if characters < 0 || !strings.HasPrefix(rest, answer) {
		return 0, fmt.Errorf("the answer %.40q is not at character %d of its text, which has %.40q there", answer, characters, rest)
	}
	return at, nil
}

// squad is the file format of SQuAD v1.1 (Rajpurkar et al. 2016): articles of paragraphs with questions,
// whose answers start at a character. Version 2 adds questions that have no answer.
type squad struct {
	Data []struct {
		Title      string `json:"title"`
		Paragraphs []struct {
			Context string `json:"context"`
			QAs     []struct {
				ID       string `json:"id"`
				Question string `json:"question"`
				None     bool   `json:"is_impossible"`
				Answers  []struct {
					Text  string `json:"text"`
					Start int    `json:"answer_start"`
				} `json:"answers"`
			} `json:"qas"`
		} `json:"paragraphs"`
	} `json:"data"`
}

func (f *files) squad(patterns []string) ([]text, error) {
	in, err := data.OpenFiles(patterns, data.Options{}, f.CacheDir)
	if err != nil {
		return nil, err
	}
	in.TellLeft(f.log)
	var out []text
	none := 0
	for _, p := range in.Paths() {
		raw, err := f.whole(p)
		if err != nil {
			return nil, err
		}
		var file squad
		if err := json.Unmarshal(raw, &file); err != nil {
			return nil, fmt.Errorf("%s is not a SQuAD v1.1 file: %w", p, strictjson.Explain(err))
		}
		for _, article := range file.Data {
			for i, par := range article.Paragraphs {
				for _, q := range par.QAs {
					where := fmt.Sprintf("%s: %s, paragraph %d, question %s", p, article.Title, i+1, q.ID)
					if q.None {
						none++
						continue
					}
					if len(q.Answers) == 0 {
						return nil, fmt.Errorf("%s has no answer", where)
					}
					x := text{Input: par.Context, Question: strings.TrimSpace(q.Question), Output: q.Answers[0].Text, Where: where, Group: article.Title}
					if x.Start, err = byteOffset(x.Input, q.Answers[0].Start, x.Output); err != nil {
						return nil, fmt.Errorf("%s: %w", where, err)
					}
					for _, a := range q.Answers[1:] {
						x.Others = append(x.Others, a.Text)
					}
					out = append(out, x)
				}
			}
		}
	}
	if none > 0 {
		f.log("data: qa: skipping %s without an answer (SQuAD v2)", size.Of(none, "question"))
	}
	return out, nil
}

// pairs reads text files in pairs: the first has the inputs and the second the outputs, line by line, and so
// on.
func (f *files) pairs(names []string) ([]text, error) {
	if len(names)%2 != 0 {
		return nil, fmt.Errorf("%d files of lines: want pairs, the inputs and then the outputs", len(names))
	}
	var out []text
	for i := 0; i < len(names); i += 2 {
		in, err := f.lines(names[i])
		if err != nil {
			return nil, err
		}
		to, err := f.lines(names[i+1])
		if err != nil {
			return nil, err
		}
		if len(in) != len(to) {
			return nil, fmt.Errorf("%s has %s, %s has %d: want one output line per input line", names[i], size.Of(len(in), "line"), names[i+1], len(to))
		}
		for n := range in {
			where := fmt.Sprintf("%s:%d", names[i], n+1)
			out = append(out, text{Input: in[n], Output: to[n], Where: where, Group: in[n]})
		}
	}
	return out, nil
}

func (f *files) lines(name string) (out []string, err error) {
	raw, err := f.whole(name)
	if err != nil {
		return nil, err
	}
	for line, err := range data.Lines(name, bytes.NewReader(raw), int64(f.MaxRecord)) {
		if err != nil {
			return nil, err
		}
		out = append(out, string(line))
	}
	return out, nil
}

// wholeLimit is the maximum decompressed size of a file that is read as a whole, unless data.max_record
// allows more.
const wholeLimit = 256 << 20

// whole reads a text file.
func (f *files) whole(name string) (text []byte, err error) {
	raw, err := data.ReadFile(name, max(cmp.Or(f.most, wholeLimit), int64(f.MaxRecord)))
	if err != nil {
		return nil, err
	}
	text, n, err := data.ValidUTF8(name, raw, f.ReplaceInvalid)
	f.replaced += n
	return text, err
}
