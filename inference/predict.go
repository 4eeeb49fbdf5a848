package inference

import (
	"context"
	"errors"
	"iter"
)

// Input is what a model is applied to: a data.Record, say.
type Input interface {
	// Text returns a field that holds text.
	Text(field string) (string, error)
	// Where identifies the input to a person.
	Where() string
}

// Answer is a model's output for an input: fields in the order of printing.
type Answer []Field

// Field is a name and its value, which encoding/json can print.
type Field struct {
	Name  string
	Value any
}

// Predictor applies a trained model. It is for one goroutine.
type Predictor interface {
	// Batch is how many inputs to pass at a time.
	Batch() int
	// TextField is the field that holds the text.
	TextField() string
	// Predict returns the answers to each input, in order: one, or one for each of its parts.
	Predict(ctx context.Context, inputs []Input) ([][]Answer, error)
	// Remark is something that users should know about the answers; empty: nothing.
	Remark() string
	Close() error
}

// Finder is a Predictor for whole files and folders, such as recordings.
type Finder interface {
	Predictor
	// Find returns the inputs that a path or a pattern names, as what [Predictor.TextField] holds; none means
	// that it names files with records.
	Find(pattern string) ([]string, error)
}

// PredictAll answers inputs in order, batched as suits the predictor, and returns the number of answers. An
// input that cannot be read ends it, after the answers to those before.
func PredictAll(ctx context.Context, p Predictor, inputs iter.Seq2[Input, error], to *AnswerWriter) (n int, err error) {
	batch := make([]Input, 0, p.Batch())
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		answers, err := p.Predict(ctx, batch)
		if err != nil {
			return err
		}
		for i, list := range answers {
			for _, x := range list {
				if err := to.Write(batch[i], x); err != nil {
					return err
				}
			}
			n += len(list)
		}
		batch = batch[:0]
		return to.Flush()
	}
	for in, err := range inputs {
		if err != nil {
			if ctx.Err() == nil {
				err = errors.Join(err, flush())
			}
			return n, err
		}
		if batch = append(batch, in); len(batch) == cap(batch) {
			if err := flush(); err != nil {
				return n, err
			}
		}
	}
	return n, flush()
}
