package nn

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/graph"
)

// run compiles a function, fills its inputs and states with normal numbers and returns
// its outputs and what it was filled with.
func run(t *testing.T, build func(b *graph.Builder)) (out, in map[string][]float32) {
	t.Helper()
	b := graph.NewBuilder("f")
	if err := graph.Catch(func() { build(b) }); err != nil {
		t.Fatal(err)
	}
	p, err := engine.CompileForward(engine.CompileOptions{Verify: true}, b.F)
	if err != nil {
		t.Fatal(err)
	}
	r, err := p.Load(backend.CPU(2))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}()
	rng := rand.New(rand.NewPCG(4, 2))
	in, out = map[string][]float32{}, map[string][]float32{}
	fill := func(name string, x engine.Tensor) {
		for i := range x.F32() {
			x.F32()[i] = float32(rng.NormFloat64())
		}
		in[name] = slices.Clone(x.F32())
	}
	for _, v := range p.Inputs {
		x, _ := r.Input(0, v.Name)
		fill(v.Name, x)
	}
	for _, s := range p.States {
		x, _ := r.State(s.Name)
		fill(s.Name, x)
		if err := r.SetState(x); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Run("f", 0); err != nil {
		t.Fatal(err)
	}
	for _, o := range b.F.Outputs {
		x, _ := r.Output("f", o.Name)
		if o.Value.DType() == graph.I32 {
			for _, v := range x.I32() {
				out[o.Name] = append(out[o.Name], float32(v))
			}
			continue
		}
		out[o.Name] = slices.Clone(x.F32())
	}
	return out, in
}

// Tokens sent to experts and back equal each expert's matmul on all tokens, masked by the
// tokens it took, and weighted.
func TestExpertsEqualDense(t *testing.T) {
	for _, c := range []struct {
		experts, choices int
		capacity         float64
	}{{1, 1, 0}, {4, 1, 0}, {4, 1, 1}, {4, 2, 0}, {5, 3, 0.7}, {3, 3, 1}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			const batch, time, d, width = 3, 9, 5, 4
			n := batch * time
			out, in := run(t, func(b *graph.Builder) {
				x := b.Input("x", graph.T(graph.F32, batch, time, d))
				r := Router{c.experts, c.choices, c.capacity}.Route(b, "router", x, graph.Zeros())
				rows := r.Rows(b, b.Reshape(x, n, d))
				y := r.Linear(b, "all", rows, 0, c.experts, width, true, graph.Zeros())
				if c.experts > 2 { // and one part of the experts more
					y = b.Add(y, r.Linear(b, "some", rows, 1, c.experts-1, width, true, graph.Zeros()))
				}
				b.Output("y", r.Tokens(b, y))
				b.Output("choice", r.Choice)
				entries := r.Entries(b, rows)
				b.Output("entries", entries)
				b.Output("mask", r.Mask(b, 0, 1))
				b.Output("rows", b.Sub(r.FromEntries(b, entries), rows))
			})
			x := in["x"]
			product := func(name string, n, e int) (y [width]float64) {
				w, bias := in[name+".weight"], in[name+".bias"]
				for o := range width {
					y[o] = float64(bias[e*width+o])
					for k := range d {
						y[o] += float64(w[(e*width+o)*d+k]) * float64(x[n*d+k])
					}
				}
				return y
			}
			most := math.MaxInt
			if c.capacity > 0 {
				most = int(math.Ceil(c.capacity * float64(time*c.choices) / float64(c.experts)))
			}
			want := make([]float64, n*width)
			taken := map[[2]int]int{}
			for i := range n {
				for k, chosen := range ranked(in["router.weight"], x[i*d:(i+1)*d], c.experts, c.choices) {
					at := i*c.choices + k
					e := chosen.expert
					if taken[[2]int{i / time, e}]++; taken[[2]int{i / time, e}] > most {
						e = c.experts
					}
					if got := int(out["choice"][at]); got != e {
						t.Fatalf("choice %d of token %d went to %d, want %d", k, i, got, e)
					}
					if (out["mask"][at] != 0) != (e == 0) {
						t.Errorf("the mask of expert 0 has %v for a choice of %d", out["mask"][at], e)
					}
					if e == c.experts {
						continue
					}
					if entry := out["entries"][at*d : (at+1)*d]; !slices.Equal(entry, x[i*d:(i+1)*d]) {
						t.Errorf("entry %d is not its token", at)
					}
					for o, v := range product("all", i, e) {
						want[i*width+o] += chosen.p * v
					}
					if c.experts > 2 && e > 0 && e < c.experts-1 {
						for o, v := range product("some", i, e-1) {
							want[i*width+o] += chosen.p * v
						}
					}
				}
			}
			for i, v := range out["y"] {
				if math.Abs(float64(v)-want[i]) > 1e-4 {
					t.Fatalf("token %d: %v, want %v", i/width, v, want[i])
				}
			}
			for i, v := range out["rows"] {
				if v != 0 {
					t.Fatalf("row %d is another one after going to its token and back", i/d)
				}
			}
		})
	}
}

// rank is an expert with its probability.
type rank struct {
	expert int
	p      float64
}

// ranked returns the choices likeliest experts, with their weights.
func ranked(w, x []float32, experts, choices int) []rank {
	out := make([]rank, experts)
	sum := 0.0
	for e := range out {
		z := 0.0
		for k := range x {
			if experts > 1 {
				z += float64(w[e*len(x)+k]) * float64(x[k])
			}
		}
		out[e] = rank{e, math.Exp(z)}
		sum += out[e].p
	}
	slices.SortFunc(out, func(a, b rank) int { return cmp.Compare(b.p, a.p) })
	out = out[:choices]
	if choices > 1 {
		sum = 0
		for _, r := range out {
			sum += r.p
		}
	}
	for i := range out {
		out[i].p /= sum
	}
	return out
}

// A balanced router has a balance of 1 and the entropy of a fair die, one that
// sends all to one expert the number of experts and 0.
func TestBalance(t *testing.T) {
	const experts, d = 4, 3
	for _, strength := range []float64{0, 1e3} {
		out, _ := run(t, func(b *graph.Builder) {
			x := b.MulC(b.BroadcastTo(b.Scalar(1), 2, 8, d), strength)
			r := Router{experts, 1, 0}.Route(b, "router", x, graph.Zeros())
			b.Output("balance", b.Reshape(r.Balance, 1))
			b.Output("entropy", r.Entropy)
		})
		balance, entropy := 1.0, math.Log(experts)
		if strength > 0 {
			balance, entropy = experts, 0
		}
		if got := float64(out["balance"][0]); math.Abs(got-balance) > 1e-3 {
			t.Errorf("strength %v: balance %v, want %v", strength, got, balance)
		}
		for _, h := range out["entropy"] {
			if math.Abs(float64(h)-entropy) > 1e-3 {
				t.Errorf("strength %v: entropy %v, want %v", strength, h, entropy)
			}
		}
	}
}

func TestRunningSums(t *testing.T) {
	const batch, time, d = 2, 37, 3
	out, in := run(t, func(b *graph.Builder) {
		x := b.Input("x", graph.T(graph.F32, batch, time, d))
		rate := b.Exp(b.Input("rate", graph.T(graph.F32, batch, time, d)))
		b.Output("sum", CumulativeSum(b, x))
		b.Output("leaky", LeakySum(b, x, rate))
	})
	for b := range batch {
		for k := range d {
			sum, leaky := 0.0, 0.0
			for t2 := range time {
				i := (b*time+t2)*d + k
				x, rate := float64(in["x"][i]), math.Exp(float64(in["rate"][i]))
				sum += x
				leaky = math.Exp(-rate)*leaky + rate*x
				if math.Abs(sum-float64(out["sum"][i])) > 1e-4 || math.Abs(leaky-float64(out["leaky"][i])) > 1e-3 {
					t.Fatalf("step %d: %v and %v, want %v and %v", t2, out["sum"][i], out["leaky"][i], sum, leaky)
				}
			}
		}
	}
}
