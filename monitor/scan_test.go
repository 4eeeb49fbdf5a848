package monitor

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/snug-ml/snug/train"
	"github.com/snug-ml/snug/train/checkpoint"
)

// randomFloat has all kinds of numbers: short and long, tiny and huge, zeros of both
// signs.
func randomFloat(r *rand.Rand) float64 {
	switch r.IntN(8) {
	case 0:
		return 0
	case 1:
		return math.Copysign(0, -1)
	case 2:
		return float64(r.IntN(1e6)) / 1e3
	case 3:
		return -float64(r.IntN(1000))
	case 4:
		return r.Float64() * math.Pow(10, float64(r.IntN(40)-20))
	case 5:
		for {
			if x := math.Float64frombits(r.Uint64()); finite(x) {
				return x
			}
		}
	case 6:
		return float64(int64(1)<<53 + r.Int64N(1<<10))
	}
	return r.NormFloat64()
}

func randomLine(r *rand.Rand) train.Line {
	f := func() checkpoint.Float {
		switch r.IntN(12) {
		case 0:
			return checkpoint.Float(math.NaN())
		case 1:
			return checkpoint.Float(math.Inf(1))
		case 2:
			return checkpoint.Float(math.Inf(-1))
		}
		return checkpoint.Float(randomFloat(r))
	}
	p := func() *checkpoint.Float {
		x := f()
		if r.IntN(4) == 0 {
			return nil
		}
		return &x
	}
	l := train.Line{
		Event: "update", Update: r.Int64N(1 << 40), Loss: p(), LR: p(), GradNorm: p(), Scale: randomFloat(r), Skipped: r.IntN(3) == 0, Tokens: r.Int64() >> r.IntN(63),
		LossZ: f(), NormZ: f(), Seconds: randomFloat(r), Rate: randomFloat(r), Wait: randomFloat(r), Time: float64(r.Int64N(2e12)) / 1e3,
	}
	if r.IntN(3) > 0 {
		l.Since = &train.Since{
			Updates: r.Int64N(100), Seconds: randomFloat(r), Wait: randomFloat(r), Save: randomFloat(r), Evaluation: randomFloat(r), Tokens: r.Int64N(1 << 50), FLOPs: randomFloat(r),
		}
	}
	return l
}

// same compares lines, following pointers; NaN equals NaN, and zeros have signs.
func same(a, b *train.Line) bool {
	text := func(l *train.Line) string {
		bits := func(f *checkpoint.Float) any {
			if f == nil {
				return nil
			}
			return math.Float64bits(float64(*f))
		}
		x := *l
		x.Loss, x.LR, x.GradNorm, x.Since, x.LossZ, x.NormZ = nil, nil, nil, nil, 0, 0
		return fmt.Sprintf("%#v %v %v %v %v %v %+v %v", x, bits(l.Loss), bits(l.LR), bits(l.GradNorm), bits(&l.LossZ), bits(&l.NormZ), l.Since, math.Signbit(l.Rate))
	}
	return text(a) == text(b)
}

// Lines that the scanner accepts are read like encoding/json reads them, and it accepts
// every line that a run writes.
func TestScannerReadsAsJSONDoes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var s lineScanner
	for range 20_000 {
		line := randomLine(r)
		raw, err := json.Marshal(line)
		if err != nil {
			t.Fatal(err)
		}
		var want train.Line
		if err := json.Unmarshal(raw, &want); err != nil {
			t.Fatal(err)
		}
		// Among whole numbers, only strconv reads those of 19 digits.
		got, ok := s.scan(raw)
		if !ok && line.Tokens < 1e18 {
			t.Fatalf("not scanned: %s", raw)
		}
		if ok && !same(got, &want) {
			t.Fatalf("%s\n%+v\n%+v", raw, got, want)
		}
		// A line with a changed byte is refused, or read like encoding/json reads it.
		const odd = "{}[]\",:.-+eE0123456789ax \\\x00\xff"
		raw[r.IntN(len(raw))] = odd[r.IntN(len(odd))]
		want = train.Line{}
		err = json.Unmarshal(raw, &want)
		if got, ok := s.scan(raw); ok && (err != nil || !same(got, &want)) {
			t.Fatalf("%s\n%+v\n%v %+v", raw, got, err, want)
		}
	}
}

// add adds a line.
func (c *curve) add(raw []byte) {
	var s lineScanner
	var e entry
	s.read(raw, &e)
	c.take(&e)
}

// Unusual lines are left to encoding/json, and read all the same.
func TestScannerGivesUp(t *testing.T) {
	var s lineScanner
	for _, raw := range []string{
		``, `{`, `{}`, `null`, `{"event":"eval","update":1}`, `{"update":1}`,
		`{"event":"update","update":1,"loss":2} `,
		`{"event":"update", "update":1,"loss":2}`,
		`{"event":"update","update":1,"update":2,"loss":2}`,
		`{"event":"update","Update":1,"loss":2}`,
		`{"event":"update","update":1.0,"loss":2}`,
		`{"event":"update","update":1,"loss":null}`,
		`{"event":"update","update":1,"loss":01}`,
		`{"event":"update","update":1,"loss":1.}`,
		`{"event":"update","update":1,"loss":.5}`,
		`{"event":"update","update":1,"loss":+5}`,
		`{"event":"update","update":1,"loss":1e}`,
		`{"event":"update","update":1,"loss":1e999}`,
		`{"event":"update","update":9999999999999999999,"loss":1}`,
		`{"event":"update","update":1,"loss":2,"new":3}`,
		`{"event":"update","update":1,"loss":2,"since":null}`,
		`{"event":"update","update":1,"loss":2,"since":{}}`,
		`{"\u0065vent":"update","update":1,"loss":2}`,
	} {
		if l, ok := s.scan([]byte(raw)); ok {
			t.Errorf("%s was scanned: %+v", raw, l)
		}
	}
	var fast, slow curve
	raw := []byte(update(7, `"NaN"`))
	fast.add(raw[:len(raw)-1])
	slow.add(append([]byte(" "), raw...))
	if len(fast.rows) != 1 || fmt.Sprint(fast.rows) != fmt.Sprint(slow.rows) || !reflect.DeepEqual(fast.last, slow.last) {
		t.Errorf("%+v\n%+v", fast.rows, slow.rows)
	}
}

func FuzzScanner(f *testing.F) {
	f.Add([]byte(update(7, "2.5e-3")))
	f.Add([]byte(`{"event":"update","update":1,"loss":-0.0,"loss_z":"+Inf","skipped":true}`))
	var s lineScanner
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, ok := s.scan(raw)
		if !ok {
			return
		}
		var want train.Line
		if err := json.Unmarshal(raw, &want); err != nil || !same(got, &want) {
			t.Errorf("%q: %v\n%+v\n%+v", raw, err, got, want)
		}
	})
}
