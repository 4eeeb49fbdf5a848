package session_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/session"
	"github.com/snug-ml/snug/train"
)

// ExampleTrain trains a small language model on a few files, and prints progress from the stream of events.
func ExampleTrain() {
	dir := texts()
	defer func() { _ = os.RemoveAll(dir) }()
	result, err := session.Train(context.Background(), session.Options{
		Sources: config.Sources{Preset: "quickstart", Overrides: settings(
			"data.source", filepath.Join(dir, "*.txt"), "data.format", "auto", "data.split_by", "document", "data.held_out_fraction", "0.2", "data.tokenizer.vocab_size", "300", "data.seq_len", "32",
			"model.d_model", "32", "model.n_layers", "1", "model.n_heads", "2", "model.d_ff", "64",
			"training.batch_size", "8", "training.max_steps", "20", "training.log_steps", "10", "training.eval_steps", "10", "training.warmup_steps", "2", "training.sample.tokens", "0",
		)},
		Dir: filepath.Join(dir, "run"),
		OnEvent: func(e session.Event) {
			switch e := e.(type) {
			case train.Step:
				if e.Log {
					fmt.Printf("update %d of %d\n", e.Update, e.Total)
				}
			case train.Evaluated:
				fmt.Printf("evaluated after update %d, best so far: %v\n", e.Update, e.Best)
			}
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%d updates, trained: %v\n", result.Updates, result.Done)
	// Output:
	// update 10 of 20
	// evaluated after update 10, best so far: true
	// update 20 of 20
	// evaluated after update 20, best so far: true
	// 20 updates, trained: true
}

// texts creates a folder with the files.
func texts() (dir string) {
	dir, err := os.MkdirTemp("", "snug")
	if err != nil {
		panic(err)
	}
	for i := range 20 {
		text := strings.Repeat(fmt.Sprintf("The %d foxes jump over the lazy dog. ", i), 20)
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.txt", i)), []byte(text), 0o666); err != nil {
			panic(err)
		}
	}
	return dir
}

// settings returns overrides from pairs of keys and values.
func settings(pairs ...string) (out []config.Override) {
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, config.Override{Key: pairs[i], Text: pairs[i+1]})
	}
	return out
}
