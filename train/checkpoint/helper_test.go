package checkpoint

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/snug-ml/snug/data/safetensors"
)

// testSnapshot makes a snapshot whose every byte depends on the update.
func testSnapshot(update int64) *Snapshot {
	r := rand.New(rand.NewPCG(uint64(update), 7))
	tensor := func(name string, d safetensors.DType, shape ...int) Tensor {
		size, err := d.ByteSize(shape)
		if err != nil {
			panic(err)
		}
		data := make([]byte, size)
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		if width := d.Bits() / 8; d == safetensors.F32 || d == safetensors.BF16 { // finite numbers, so that they can be compared
			for i := 0; i < len(data); i += width {
				data[i+width-1] = 0x3f
			}
		}
		return Tensor{Name: name, DType: d, Shape: shape, Data: data}
	}
	history := History{}
	for u := range min(update, 50) {
		history.Add("loss", u, 10/float64(u+1))
	}
	return &Snapshot{
		Weights: []Tensor{tensor("embed.weight", safetensors.F32, 16, 4), tensor("norm.bias", safetensors.BF16, 4), tensor("mask", safetensors.BOOL, 3)},
		Optimizer: []Tensor{
			tensor("m/embed.weight", safetensors.F32, 16, 4), tensor("v/embed.weight", safetensors.F32, 16, 4),
		},
		State: State{
			Update: update, Tokens: 1 << 40 * update, RNG: RNG{Seed: 1<<64 - 1, Counter: uint64(update)},
			Loader: json.RawMessage(fmt.Sprintf(`{"epoch":0,"at":%d}`, update)),
		},
		Metadata: Metadata{System: "refocused", Parameters: 68, Metrics: map[string]Float{"loss": 2.5}, History: history},
		Files:    map[string][]byte{ConfigFile: fmt.Appendf(nil, "model:\n  d_model: 4\ntraining:\n  max_steps: %d\n", update), "tokenizer.json": []byte("{}")},
		PlanHash: "plan",
		Metric:   &Metric{Name: "eval_loss", Value: Float(10 / float64(update+1))},
	}
}

// mustEqual fails if a loaded checkpoint is not, in every byte, the snapshot of
// its update.
func mustEqual(t testing.TB, c *Checkpoint) {
	t.Helper()
	want := testSnapshot(c.State.Update)
	for _, part := range []struct {
		file *safetensors.File
		want []Tensor
	}{{c.Weights, want.Weights}, {c.Optimizer, want.Optimizer}} {
		if n := len(part.file.Tensors()); n != len(part.want) {
			t.Fatalf("update %d: %d tensors, want %d", c.State.Update, n, len(part.want))
		}
		for _, w := range part.want {
			got, err := part.file.Tensor(w.Name)
			if err != nil {
				t.Fatal(err)
			}
			if got.DType != w.DType || !bytes.Equal(got.Data, w.Data) {
				t.Fatalf("update %d: tensor %s is not what was saved", c.State.Update, w.Name)
			}
		}
	}
	for name, data := range want.Files {
		got, err := c.File(name)
		if err != nil || !bytes.Equal(got, data) {
			t.Fatalf("update %d: file %s is not what was saved: %v", c.State.Update, name, err)
		}
	}
	if a, b := asJSON(t, c.State), asJSON(t, want.State); a != b {
		t.Fatalf("state %s, want %s", a, b)
	}
}

func asJSON(t testing.TB, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// open opens a store that never really sleeps and closes it with the test.
func open(t testing.TB, dir string, opts Options) *Store {
	t.Helper()
	if opts.sleep == nil {
		opts.sleep = noSleep
	}
	s, err := Open(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func noSleep(time.Duration) <-chan time.Time { return time.After(0) }

func save(t testing.TB, s *Store, updates ...int64) {
	t.Helper()
	for _, u := range updates {
		if err := s.Save(context.Background(), testSnapshot(u)); err != nil {
			t.Fatal(err)
		}
	}
}

// latest loads the newest checkpoint, checks all of it and returns its update,
// -1 if there is none.
func latest(t testing.TB, dir string) (int64, []Rejected) {
	t.Helper()
	c, rejected, err := Latest(dir)
	if err != nil {
		return -1, rejected
	}
	mustEqual(t, c)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	return c.State.Update, rejected
}

// flip inverts one bit of a file.
func flip(data []byte, bit int) []byte {
	data = bytes.Clone(data)
	data[bit/8] ^= 1 << (bit % 8)
	return data
}

// headerLen is the length of a safetensors header with its length field.
func headerLen(data []byte) int { return 8 + int(binary.LittleEndian.Uint64(data)) }
