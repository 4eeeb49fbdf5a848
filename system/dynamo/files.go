package dynamo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/snug-ml/snug/data"
)

// readFiles reads a task's examples from the configured files.
func readFiles(ctx context.Context, name string, t *Task, patterns []string, log func(string, ...any)) ([]text, error) {
	switch t.Format {
	case "squad":
		return readSQuAD(patterns, log)
	case "lines":
		return readLines(patterns)
	}
	f, err := data.OpenFiles(patterns, data.Options{NoHeader: t.NoHeader})
	if err != nil {
		return nil, err
	}
	var out []text
	for r, err := range f.Records() {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		x, err := fromRecord(name, t, r)
		if err != nil {
			return nil, err
		}
		out = append(out, x)
	}
	return out, nil
}

// The fields of a question beside those that the configuration names.
const (
	fieldQuestion = "question"
	fieldStart    = "start_position" // of the answer, in characters
)

func fromRecord(name string, t *Task, r data.Record) (x text, err error) {
	field := func(key, column string) string {
		var s string
		if err == nil {
			if s, err = r.Text(column); err != nil {
				err = fmt.Errorf("%w (tasks.%s.%s chooses the field)", err, name, key)
			}
		}
		return s
	}
	x = text{Input: field("input_field", t.Input), Where: r.Where(), Group: r.Where()}
	switch kindOf(name) {
	case classify:
		label, e := r.Int(t.Output)
		if err == nil {
			err = e
		}
		if err == nil && (label < 0 || label >= labels) {
			err = fmt.Errorf("%s: label %d, want 0 or 1", r.Where(), label)
		}
		x.Label = int(label)
	case point:
		x.Output, x.Question = field("output_field", t.Output), field("output_field", fieldQuestion)
		start, e := r.Int(fieldStart)
		if err == nil {
			err = e
		}
		if err == nil {
			x.Start, err = byteOffset(x.Input, int(start), x.Output)
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", r.Where(), err)
		}
	case write:
		x.Output = field("output_field", t.Output)
	}
	return x, err
}

// byteOffset turns the place of an answer in characters into one in bytes and
// checks that the answer stands there.
func byteOffset(s string, characters int, answer string) (int, error) {
	at, rest := 0, s
	for range characters {
		_, n := utf8.DecodeRuneInString(rest)
		if n == 0 {
			return 0, fmt.Errorf("the answer is said to start at character %d of %d", characters, utf8.RuneCountInString(s))
		}
		at, rest = at+n, rest[n:]
	}
	if characters < 0 || !strings.HasPrefix(rest, answer) {
		return 0, fmt.Errorf("the answer %.40q does not stand at character %d of its text, there is %.40q", answer, characters, rest)
	}
	return at, nil
}

// squad is the file format of SQuAD v1.1 (Rajpurkar et al. 2016): articles of
// paragraphs with questions, whose answers start at a character. Version 2 adds
// questions that have none.
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

func readSQuAD(patterns []string, log func(string, ...any)) ([]text, error) {
	paths, err := data.Glob(patterns...)
	if err != nil {
		return nil, err
	}
	var out []text
	none := 0
	for _, p := range paths {
		raw, err := readAll(p)
		if err != nil {
			return nil, err
		}
		var file squad
		if err := json.Unmarshal(raw, &file); err != nil {
			return nil, fmt.Errorf("%s is no SQuAD v1.1 file: %w", p, err)
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
		log("data: qa: %d questions that have no answer (SQuAD v2) are left out", none)
	}
	return out, nil
}

// readLines reads text files in turns: the first has the inputs and the second
// the outputs, line by line, and so on.
func readLines(names []string) ([]text, error) {
	if len(names)%2 != 0 {
		return nil, fmt.Errorf("%d files of lines: want pairs, the inputs and then the outputs", len(names))
	}
	var out []text
	for i := 0; i < len(names); i += 2 {
		in, err := lines(names[i])
		if err != nil {
			return nil, err
		}
		to, err := lines(names[i+1])
		if err != nil {
			return nil, err
		}
		if len(in) != len(to) {
			return nil, fmt.Errorf("%s has %d lines, %s has %d: they are no translation of each other", names[i], len(in), names[i+1], len(to))
		}
		for n := range in {
			where := fmt.Sprintf("%s:%d", names[i], n+1)
			out = append(out, text{Input: in[n], Output: to[n], Where: where, Group: in[n]})
		}
	}
	return out, nil
}

func lines(name string) (out []string, err error) {
	raw, err := readAll(name)
	if err != nil {
		return nil, err
	}
	if !utf8.Valid(raw) {
		return nil, fmt.Errorf("%s is not valid UTF-8", name)
	}
	s := bufio.NewScanner(strings.NewReader(string(raw)))
	s.Buffer(nil, data.DefaultMaxRecord)
	for s.Scan() {
		out = append(out, s.Text())
	}
	return out, s.Err()
}

func readAll(name string) (raw []byte, err error) {
	f, err := data.OpenFile(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return io.ReadAll(f)
}
