package dynamo

import (
	"fmt"
	"slices"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/nn"
	"github.com/snug-ml/snug/train"
)

// These are the tasks.
const (
	nameSentiment      = "sentiment"
	nameQA             = "qa"
	nameSummarization  = "summarization"
	nameCodeGeneration = "code_generation"
	nameTranslation    = "translation"
)

// taskNames lists the tasks in their usual order.
var taskNames = [...]string{nameSentiment, nameQA, nameSummarization, nameCodeGeneration, nameTranslation}

// kind is what a task's head does.
type kind uint8

const (
	classify kind = iota // one of two labels
	point                // a span of the text
	write                // a new text
)

func isTask(name string) bool { return slices.Contains(taskNames[:], name) }

func kindOf(name string) kind {
	switch name {
	case nameSentiment:
		return classify
	case nameQA:
		return point
	}
	return write
}

// taskOf returns the configuration of a task.
func taskOf(c *config.Config, name string) *Task {
	t := config.Of[Tasks](c)
	switch name {
	case nameSentiment:
		return &t.Sentiment
	case nameQA:
		return &t.QA
	case nameSummarization:
		return &t.Summarization
	case nameCodeGeneration:
		return &t.CodeGeneration
	case nameTranslation:
		return &t.Translation
	}
	panic(fmt.Sprintf("dynamo: no such task %q", name))
}

// lengthOf returns the maximum number of tokens of a task's input.
func lengthOf(c *config.Config, name string) int {
	if n := taskOf(c, name).Length; n > 0 {
		return n
	}
	return c.Data.SeqLen
}

// loraOf returns the adapter of a task.
func loraOf(c *config.Config, name string) nn.LoRA {
	t := taskOf(c, name)
	return nn.LoRA{Name: "lora." + name, Rank: t.Rank, Alpha: t.Alpha, Dropout: t.Dropout, Seed: c.Training.Seed}
}

// monitoredOf returns the metric of how well a task is learned. Every evaluation measures it, without
// generating text.
func monitoredOf(name string) train.Metric {
	switch kindOf(name) {
	case classify:
		return train.Metric{Name: "accuracy", Higher: true}
	case point:
		return train.Metric{Name: "token_f1", Higher: true}
	}
	return train.Metric{Name: lossName}
}

// lossName is the metric that every evaluation has: the mean loss of an example, or of a token of the target
// texts.
const lossName = "eval_loss"
