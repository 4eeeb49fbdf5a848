package train

import (
	"bufio"
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/snug-ml/snug/internal/regular"
)

// History is the course of a run according to its log.
type History struct {
	Updates, Loss []float64
	Evals         []float64 // updates that were evaluated after
	Metrics       map[string][]float64
}

// ReadHistory reads the log of the run in dir and the named metrics of its evaluations. A
// missing log is empty.
func ReadHistory(dir string, metrics ...string) (*History, error) {
	h := &History{Metrics: map[string][]float64{}}
	f, err := regular.Open(filepath.Join(dir, MetricsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return h, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read: nothing to lose
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var l Line
		if json.Unmarshal(lines.Bytes(), &l) != nil {
			continue // torn by a crash; a resumed run writes it again
		}
		switch {
		case l.Event == "update" && l.Loss != nil:
			h.Updates, h.Loss = append(h.Updates, float64(l.Update)), append(h.Loss, float64(*l.Loss))
		case l.Event == "eval":
			h.Evals = append(h.Evals, float64(l.Update))
			for _, name := range metrics {
				h.Metrics[name] = append(h.Metrics[name], float64(l.Metrics[name]))
			}
		}
	}
	return h, lines.Err()
}
