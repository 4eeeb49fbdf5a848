package main

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/cuda/fakegpu"
	"github.com/snug-ml/snug/engine/cuda/kernels"
	"github.com/snug-ml/snug/engine/graph"
)

// tensor is a tensor of elements in a format.
func tensor(d graph.DType, data []byte) engine.Tensor {
	return engine.Tensor{Type: graph.T(d, len(data)/int(d.Size())), Data: data}
}

// converted is an element of from in the format of to. Bits are copied if the formats are the same.
func converted(to, from engine.Tensor, at, i int64) {
	if size := from.Type.DType.Size(); to.Type.DType == from.Type.DType {
		copy(to.Data[at*size:], from.Data[i*size:(i+1)*size])
		return
	}
	one := tensor(to.Type.DType, make([]byte, to.Type.DType.Size()))
	one.SetFloats(from.Floats()[i : i+1])
	copy(to.Data[at*to.Type.DType.Size():], one.Data)
}

// expected is what an exchange must write, by what it is, as main memory would have it.
func expected() map[string]engine.Tensor {
	want := map[string]engine.Tensor{}
	for _, m := range moves {
		what := fmt.Sprintf("%v as %v", m.state, m.row)
		state := func() engine.Tensor { return tensor(m.state, drawn(1, m.state, elements, true)) }
		taken, left, cleared, given := tensor(m.row, make([]byte, row*m.row.Size())), state(), state(), state()
		for _, p := range parts {
			size := m.state.Size()
			clear(cleared.Data[p.from*size : (p.from+p.elems)*size])
			for i := range p.elems {
				converted(taken, left, p.at+i, p.from+i)
				converted(given, taken, p.from+i, p.at+i)
			}
		}
		want["take "+what], want["leave "+what], want["clear "+what], want["give "+what] = taken, left, cleared, given
	}
	for _, d := range []graph.DType{graph.F32, graph.BF16} {
		sum := make([]float32, summed)
		for n := range 2 {
			sent := tensor(d, drawn(uint64(2+n), d, ranks*stride, n == 1)).Floats()
			for r := range ranks {
				for i := range sum {
					sum[i] += sent[r*stride+i]
				}
			}
			t := tensor(graph.F32, make([]byte, 4*summed))
			t.SetFloats(sum)
			want[fmt.Sprintf("add %v, %d", d, n)] = t
		}
		t := tensor(d, make([]byte, summed*d.Size()))
		t.SetFloats(sum)
		want[fmt.Sprintf("send %v", d)] = t
	}
	return want
}

// near reports whether two tensors have the same bits, or NaN both: the bits of a NaN depend on who computes it.
func near(a, b engine.Tensor) bool {
	if len(a.Data) != len(b.Data) {
		return false
	}
	x, y := a.Floats(), b.Floats()
	for i := range x {
		if math.Float32bits(x[i]) != math.Float32bits(y[i]) && (x[i] == x[i] || y[i] == y[i]) {
			return false
		}
	}
	return true
}

// Every kernel of the exchange runs, with the results of main memory.
func TestExchange(t *testing.T) {
	for _, card := range []driver.Card{fakegpu.T4, fakegpu.A10} {
		d, err := newDevice(card, planted(t, "exchange", "", "")) // the same kernels, with every check
		if err != nil {
			t.Fatal(err)
		}
		done, err := d.exchange()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string][]byte{}
		for _, w := range done {
			got[w.what] = w.bytes
		}
		for what, x := range expected() {
			if y := tensor(x.Type.DType, got[what]); !near(x, y) {
				t.Errorf("%s: %s: %v..., want %v...", card.Name, what, y.Floats()[:min(8, len(y.Data)/4)], x.Floats()[:8])
			}
		}
		var sum float64
		for i, format := range engine.NormFormats {
			for _, x := range tensor(format, drawn(uint64(4+i), format, squares, false)).Floats() {
				sum += float64(x) * float64(x)
			}
		}
		if norm := tensor(graph.F32, got["norm"]).F32()[0]; norm != float32(math.Sqrt(sum)) {
			t.Errorf("%s: the norm is %v, want %v", card.Name, norm, math.Sqrt(sum))
		}
		if a, b := got["squares"], got["order"]; !bytes.Equal(a[:16], b[16:]) || !bytes.Equal(a[16:], b[:16]) {
			t.Errorf("%s: %x in another order are %x", card.Name, a, b)
		}
		names, err := kernels.Names(kernels.Target(card.Capability()))
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, name := range names {
			if strings.HasPrefix(name, "exchange_") {
				n++
				if !d.ran[name] {
					t.Errorf("%s: %s did not run", card.Name, name)
				}
			}
		}
		if n == 0 {
			t.Errorf("%s: there are no kernels of the exchange", card.Name)
		}
	}
}

// A kernel that writes other bits is found.
func TestCompareExchange(t *testing.T) {
	ran, err := compareExchange(fakegpu.T4, planted(t, "exchange", "add.rn.f32", "sub.rn.f32"))
	if err == nil || !strings.Contains(err.Error(), "add f32, 0") || strings.Contains(err.Error(), "take") {
		t.Errorf("wrong sums: %v", err)
	}
	if !ran["exchange_order"] {
		t.Errorf("ran: %v", ran)
	}
}
