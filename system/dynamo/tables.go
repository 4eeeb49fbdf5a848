package dynamo

import (
	"fmt"
	"math"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/data"
	"github.com/snug-ml/snug/data/token"
	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/train"
)

// unlikely is added to the score of a token that cannot be part of an answer. It fits every format of a
// program.
const unlikely = -1e4

// table holds examples of one task, encoded for the model.
type table struct {
	*data.Table
	task   string
	kind   kind
	number int // number of the task
	length int // tokens of an input
	texts  []text
	// questions is set for a task that points.
	questions []question
	// cut counts inputs and shortened counts target texts that were too long. lost counts questions whose
	// answer was cut off.
	cut, shortened, lost int
}

// usage says how a table is used.
type usage struct {
	// perExample gives every example weight 1, whatever the length of its target text. Otherwise each of its
	// tokens has weight 1.
	perExample bool
	// training leaves out questions that cannot be answered. Evaluations count them as missed.
	training bool
	// router leaves out what only a head needs.
	router bool
}

// newTable encodes texts. Inputs have at most length tokens.
func newTable(c *config.Config, tok *textEncoder, number int, texts []text, length int, use usage) (*table, error) {
	name := config.Of[Model](c).Tasks[number]
	t := &table{task: name, kind: kindOf(name), number: number, length: length}
	target := taskOf(c, name).Target
	fields := []data.Field{{Name: inputIDs, Shape: []int{length}, Pad: tok.pad}, {Name: inputLens, Pad: 1}}
	switch {
	case use.router:
	case t.kind == classify:
		fields = append(fields, data.Field{Name: inputLabel})
	case t.kind == point:
		fields = append(fields, data.Field{Name: inputStart}, data.Field{Name: inputEnd}, data.Field{Name: inputOutside, Float: true, Shape: []int{length}})
	case t.kind == write:
		fields = append(fields, data.Field{Name: inputWritten, Shape: []int{target}, Pad: tok.pad},
			data.Field{Name: inputNext, Shape: []int{target}}, data.Field{Name: inputWeights, Float: true, Shape: []int{target}})
	}
	var err error
	if t.Table, err = data.NewTable(fields...); err != nil {
		return nil, err
	}
	for i := range texts {
		if err := t.add(tok, &texts[i], target, use); err != nil {
			return nil, err
		}
	}
	if t.Len() == 0 {
		return nil, fmt.Errorf("task %s: none of %s fits in %d tokens; raise tasks.%s.length", name, size.Of(len(texts), "example"), length, name)
	}
	return t, nil
}

func (t *table) add(tok *textEncoder, x *text, target int, use usage) (err error) {
	defer token.Catch(&err)
	var ids []int32
	var cut bool
	var q question
	if t.kind == point {
		if q, err = tok.question(x, t.length); err != nil {
			return err
		}
		ids, cut = q.ids, q.cut
		if !q.ok {
			t.lost++
			if use.training {
				return nil
			}
		}
	} else {
		ids, cut = tok.ids(x.Input, t.length)
	}
	if cut {
		t.cut++
	}
	n := int32(len(ids))
	values := []any{padded(ids, t.length, tok.pad), []int32{n}}
	weight := float32(1)
	switch {
	case use.router:
	case t.kind == classify:
		values = append(values, []int32{int32(x.Label)})
	case t.kind == point:
		outside := make([]float32, t.length)
		for i := range outside {
			if i < q.context || i >= q.context+len(q.spans) {
				outside[i] = unlikely
			}
		}
		values = append(values, []int32{int32(max(0, q.start))}, []int32{int32(max(0, q.end))}, outside)
	case t.kind == write:
		read, next, short := tok.written(x.Output, target)
		if short {
			t.shortened++
		}
		each := float32(1)
		if use.perExample {
			each = 1 / float32(len(next))
		} else {
			weight = float32(len(next))
		}
		weights := make([]float32, target)
		for i := range next {
			weights[i] = each
		}
		values = append(values, padded(read, target, tok.pad), padded(next, target, 0), weights)
	}
	t.texts = append(t.texts, *x)
	if t.kind == point {
		t.questions = append(t.questions, q)
	}
	return t.Add(weight, values...)
}

// padded returns ids, padded to n.
func padded(ids []int32, n int, pad int32) []int32 {
	out := make([]int32, n)
	for i := copy(out, ids); i < n; i++ {
		out[i] = pad
	}
	return out
}

// fill copies a micro-batch of the table to the inputs of a program: its texts to the inputs with tag,
// starting at a row, and the data for its head to those with headTag.
func (t *table) fill(b *data.ExampleBatch, in train.Inputs, tag string, row int, headTag string) error {
	for i, f := range t.Fields() {
		tag, row := tag, row
		if i > 1 {
			tag, row = headTag, 0
		}
		if f.Float {
			dst, err := in.F32(at(f.Name, tag))
			if err != nil {
				return err
			}
			if err := place(f.Name, dst, b.Floats[i], row*f.Size(0)); err != nil {
				return err
			}
			continue
		}
		dst, err := in.I32(at(f.Name, tag))
		if err != nil {
			return err
		}
		if err := place(f.Name, dst, b.Ints[i], row*f.Size(0)); err != nil {
			return err
		}
	}
	for _, w := range []struct{ name, tag string }{{inputShare, tag}, {inputWeights, headTag}} {
		if w.name == inputWeights && t.kind == write && len(t.Fields()) > 2 || !in.Has(at(w.name, w.tag)) {
			continue
		}
		dst, err := in.F32(at(w.name, w.tag))
		if err != nil {
			return err
		}
		from := row
		if w.name == inputWeights && tag != headTag {
			from = 0
		}
		if err := place(w.name, dst, b.Weights, from); err != nil {
			return err
		}
	}
	if in.Has(at(inputTask, tag)) {
		dst, err := in.I32(at(inputTask, tag))
		if err != nil {
			return err
		}
		numbers := make([]int32, len(b.Weights))
		for i := range numbers {
			numbers[i] = int32(t.number)
		}
		return place(inputTask, dst, numbers, row)
	}
	return nil
}

func place[T any](name string, dst, src []T, from int) error {
	if from+len(src) > len(dst) {
		return fmt.Errorf("input %q has %d elements, the micro-batch has %d from %d on", name, len(dst), len(src), from)
	}
	copy(dst[from:], src)
	return nil
}

// unigram returns the mean loss of predicting each token of held's target texts from its frequency in those
// of t, which a decoder must beat.
func (t *table) unigram(held *table) float64 {
	counts := map[int32]float64{}
	total := 0.0
	each := func(t *table, f func(id int32)) {
		row := data.Row{Ints: make([][]int32, len(t.Fields())), Floats: make([][]float32, len(t.Fields()))}
		for i, f := range t.Fields() {
			if f.Float {
				row.Floats[i] = make([]float32, f.Size(0))
			} else {
				row.Ints[i] = make([]int32, f.Size(0))
			}
		}
		for i := range t.Len() {
			if _, err := t.Fill(i, row); err != nil {
				continue // a table in memory has no errors
			}
			for k, w := range row.Floats[4] {
				if w > 0 {
					f(row.Ints[3][k])
				}
			}
		}
	}
	each(t, func(id int32) { counts[id]++; total++ })
	// Unseen tokens get the share of one token.
	loss, n := 0.0, 0.0
	each(held, func(id int32) { loss -= math.Log(max(counts[id], 1) / (total + 1)); n++ })
	return loss / n
}
