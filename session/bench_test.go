package session

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/snug-ml/snug/config"
)

func TestPace(t *testing.T) {
	for _, c := range []struct {
		limit  time.Duration
		took   []time.Duration // times of updates 1, 2, ... of 10
		giveUp int             // the update after which it gives up; 0 if never
	}{
		{time.Minute, []time.Duration{20 * time.Second}, 1},
		{time.Minute, []time.Duration{5 * time.Second, 30 * time.Second, 5 * time.Second}, 0}, // one slow update among fast ones
		{0, []time.Duration{time.Hour}, 0},
	} {
		p := pace{began: time.Now(), updates: 10, limit: c.limit}
		for i, took := range c.took {
			if long := p.after(int64(i+1), took); (long != nil) != (i+1 == c.giveUp) {
				t.Errorf("%v of %v: %v after update %d", c.took, c.limit, long, i+1)
			}
		}
	}
	p := pace{began: time.Now().Add(-time.Hour), updates: 10, limit: time.Minute}
	if long := p.after(10, time.Hour); long != nil {
		t.Errorf("%v after the last update", long)
	}
}

// TestBenchGivesUp: a configuration that turns out slower than predicted is given up, with the time that it
// would have taken.
func TestBenchGivesUp(t *testing.T) {
	from := config.Sources{Preset: "quickstart"}
	for key, text := range map[string]string{
		"model.d_model": "32", "model.n_layers": "1", "model.n_heads": "2", "model.d_ff": "64", "model.max_seq_len": "32",
		"training.batch_size": "2", "hardware.threads": "1",
	} {
		from.Overrides = append(from.Overrides, config.Override{Key: key, Text: text})
	}
	s, err := Load(t.Context(), from, nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := s.Bench(t.Context(), BenchOptions{Updates: 5, Limit: time.Nanosecond, Synthetic: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	var long tooLong
	if _, err := b.Measure(nil); !errors.As(err, &long) || long.update != 0 {
		t.Errorf("%v, want that it is predicted to take too long", err)
	}
	b.slower = 0 // nothing is predicted to take any time
	if _, err := b.Measure(nil); !errors.As(err, &long) || long.update > 1 || !strings.HasPrefix(err.Error(), "given up") {
		t.Errorf("%v, want that it was given up by the end of an update", err)
	}
	b.how.Limit = 0
	if row, err := b.Measure(nil); err != nil || row.Updates != 5 || len(row.Losses) != BenchWarmup+5 {
		t.Errorf("without a limit: %+v, %v", row, err)
	}
}
