package checkpoint

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/snug-ml/snug/data/safetensors"
)

const benchBytes = 256 << 20

func benchStore(b *testing.B) (*Store, *Snapshot) {
	b.Helper()
	snap := testSnapshot(1)
	m := newMemory(1, Tensor{Name: "w", DType: safetensors.F32, Shape: []int{benchBytes / 4}})
	snap.Weights, snap.Optimizer, snap.Live = m.tensors, nil, m
	s := open(b, b.TempDir(), Options{KeepLast: 1})
	if err := s.Reserve(StagingBytes(benchBytes)); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(benchBytes)
	return s, snap
}

// BenchmarkSave measures a save of 256 MB from call to durable, and as blocked-ms how long
// an update waits that changes everything at once.
func BenchmarkSave(b *testing.B) {
	s, snap := benchStore(b)
	blocked := time.Duration(0)
	for b.Loop() {
		snap.State.Update++
		if err := s.SaveAsync(snap); err != nil {
			b.Fatal(err)
		}
		if err := snap.Live.(*memory).update(); err != nil {
			b.Fatal(err)
		}
		if err := s.Flush(context.Background()); err != nil {
			b.Fatal(err)
		}
		blocked += s.Status().Held
	}
	b.ReportMetric(float64(blocked.Microseconds())/1000/float64(b.N), "blocked-ms")
}

// BenchmarkVerify measures reading and hashing 256 MB, as before a resume.
func BenchmarkVerify(b *testing.B) {
	s, snap := benchStore(b)
	if err := s.Save(context.Background(), snap); err != nil {
		b.Fatal(err)
	}
	path := filepath.Join(s.Dir(), stepName(snap.State.Update))
	for b.Loop() {
		if report, err := Verify(path); err != nil || report.Err() != nil {
			b.Fatal(err, report.Err())
		}
	}
}
