package inference

import "context"

// Input is what a model is applied to: a data.Record, say.
type Input interface {
	// Text is a field that holds text.
	Text(field string) (string, error)
	// Where names the input for a person.
	Where() string
}

// Answer is what a model says of an input: fields in the order of printing.
type Answer []Field

// Field is a name and its value, which encoding/json can print.
type Field struct {
	Name  string
	Value any
}

// Predictor applies a trained model. It is for one goroutine.
type Predictor interface {
	// Batch is how many inputs are best handed over at a time.
	Batch() int
	// TextField is the field that holds the text.
	TextField() string
	// Predict gives the answer to each input, in order.
	Predict(ctx context.Context, inputs []Input) ([]Answer, error)
	// Remark is what its user should know of the answers, empty for nothing.
	Remark() string
	Close() error
}
