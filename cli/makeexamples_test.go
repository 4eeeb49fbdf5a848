package cli

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
)

// makeExamples is a command for scripts. It writes texts labeled by a word in them (comments.csv,
// colours.jsonl), words to reverse (words.jsonl) and prose (prose.jsonl), enough to learn something from.
func makeExamples() {
	if err := writeExamples(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func writeExamples() error {
	rng := rand.New(rand.NewPCG(1, 2))
	good, bad := strings.Fields("room good thanks quiet park family clean near light morning garden please"), strings.Fields("hate scam idiot stupid")
	comments := [][]string{{"text", "label"}}
	var colours, words, prose []any
	for i := range 240 {
		var text []string
		for range 3 + rng.IntN(6) {
			text = append(text, good[rng.IntN(len(good))])
		}
		label := "0"
		if i%3 == 0 {
			text[rng.IntN(len(text))], label = bad[rng.IntN(len(bad))], "1"
		}
		comments = append(comments, []string{fmt.Sprintf("%s %d", strings.Join(text, " "), i), label})
		a, b := fmt.Sprintf("x%d", i%7), fmt.Sprintf("y%d", i%11)
		colours = append(colours, map[string]any{"input": fmt.Sprintf("the colour %s is number %d", [2]string{"red", "green"}[i%2], i), "output": i % 2})
		words = append(words, map[string]any{"input": a + " " + b, "output": b + " " + a})
		prose = append(prose, map[string]any{"text": fmt.Sprintf("the colour red is number %d and %s %s comes after green", i, a, b)})
	}
	for name, records := range map[string][]any{"colours.jsonl": colours, "words.jsonl": words, "prose.jsonl": prose} {
		var lines strings.Builder
		for _, r := range records {
			if err := json.NewEncoder(&lines).Encode(r); err != nil {
				return err
			}
		}
		if err := os.WriteFile(name, []byte(lines.String()), 0o666); err != nil {
			return err
		}
	}
	var table strings.Builder
	w := csv.NewWriter(&table)
	if err := w.WriteAll(comments); err != nil {
		return err
	}
	return os.WriteFile("comments.csv", []byte(table.String()), 0o666)
}
