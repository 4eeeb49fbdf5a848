package monitor

import (
	"strings"
	"testing"
	"time"

	"github.com/snug-ml/snug/train"
)

// The cost of watching: a poll of a run that is not being written, and a snapshot after
// as many updates as a long run has.
func BenchmarkWatch(b *testing.B) {
	f := &folder{b, b.TempDir()}
	var text strings.Builder
	for u := 1; u <= 100_000; u++ {
		text.WriteString(update(u, "1.5"))
	}
	f.write(InfoFile, `{"updates":100000,"unit":"tokens"}`)
	f.write(train.MetricsFile, text.String())
	r, err := Open(f.dir)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("open, 100,000 lines", func(b *testing.B) {
		for b.Loop() {
			if _, err := Open(f.dir); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("poll", func(b *testing.B) {
		for b.Loop() {
			if changed, err := r.Poll(); err != nil || changed {
				b.Fatal(changed, err)
			}
		}
	})
	b.Run("snapshot, 100,000 updates", func(b *testing.B) {
		now := start.Add(time.Hour)
		for b.Loop() {
			if s := r.Snapshot(now, View{Width: 200, Lines: 20}); s.Update != 100_000 {
				b.Fatal(s.Update)
			}
		}
	})
}
