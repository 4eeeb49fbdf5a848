package gemm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"unsafe"

	"github.com/snug-ml/snug/internal/float16"
	"github.com/snug-ml/snug/internal/isa"
)

// bits returns the stored bytes of an operand.
func (o *operand) bits() []byte { return slices.Clone(o.mem.data) }

// TestDeterministic shows that C has the same bits for any number of workers,
// any task grid and any groups, and that a row's result does not depend on how
// many rows there are.
func TestDeterministic(t *testing.T) {
	const m, n, k = 150, 170, 700
	rng := rand.New(rand.NewPCG(3, 4))
	for _, level := range isa.Levels() {
		for _, typ := range []DType{F32, BF16, F16} {
			a := newOperand(m, k, 0, typ, false, uniform(rng))
			b := newOperand(k, n, 0, typ, false, uniform(rng))
			var want []byte
			for _, o := range []Options{
				{Workers: 1}, {Workers: 2}, {Workers: 3}, {Workers: 64},
				{MB: 20, NB: 64}, {MB: 1, NB: 1}, {SharedLimit: 1},
			} {
				o.ISA = level
				c := newOperand(m, n, 0, typ, false, uniform(rng))
				p := NewPlan(m, n, k, typ, typ, typ, false, false, o)
				args := &Args{A: a.Matrix, B: b.Matrix, C: c.Matrix}
				if o.Workers > 1 {
					team := newTeam(o.Workers, p.WorkerBytes())
					team.multiply(p, args, newGuarded(p.SharedBytes()).data)
					team.close()
				} else {
					sequential(t, p, args, rng)
				}
				got := c.bits()
				if want == nil {
					want = got
				}
				if !slices.Equal(got, want) {
					t.Errorf("%v %v: options %+v change the bits of C", level, typ, o)
				}
			}
			for _, rows := range []int{1, 5, 47, 100} {
				c := newOperand(rows, n, 0, typ, false, uniform(rng))
				p := NewPlan(rows, n, k, typ, typ, typ, false, false, Options{ISA: level})
				sequential(t, p, &Args{A: a.Matrix, B: b.Matrix, C: c.Matrix}, rng)
				if got := c.bits(); !slices.Equal(got, want[:len(got)]) {
					t.Errorf("%v %v: the first %d of %d rows alone have other bits", level, typ, rows, m)
				}
			}
		}
	}
}

// marks counts how often each element of C is finished and adds 1 to it.
type marks struct {
	mu      sync.Mutex
	n       int
	count   []int
	streams [4]Stream
}

func (e *marks) Tile(i0, i1, j0, j1 int, acc *float32, stride int) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := i0; i < i1; i++ {
		row := unsafe.Slice((*float32)(unsafe.Add(unsafe.Pointer(acc), 4*(i-i0)*stride)), j1-j0)
		for j := range row {
			e.count[i*e.n+j0+j]++
			row[j]++
		}
	}
	return false
}

// Streams are more than are fetched.
func (e *marks) Streams() []Stream {
	for i := range e.streams {
		e.streams[i] = Stream{Data: unsafe.Pointer(&e.count[0]), Pitch: 8 * e.n, Size: 8}
	}
	return e.streams[:]
}

// TestEpilogue shows that every element passes through the epilogue exactly
// once, after its last term and before it is rounded.
func TestEpilogue(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, level := range isa.Levels() {
		for _, typ := range []DType{F32, BF16, F16} {
			for _, s := range [][3]int{{1, 1, 1}, {37, 70, 1200}, {130, 200, 64}} {
				m, n, k := s[0], s[1], s[2]
				a := newOperand(m, k, 1, F32, true, uniform(rng))
				b := newOperand(k, n, 1, F32, true, uniform(rng))
				c := newOperand(m, n, 1, typ, false, uniform(rng))
				want, scale := reference(m, n, k, a, b, c, false)
				for i := range want {
					want[i]++
				}
				e := &marks{n: n, count: make([]int, m*n)}
				p := NewPlan(m, n, k, F32, F32, typ, true, true, Options{ISA: level, Workers: 8, SharedLimit: 64 << 10})
				sequential(t, p, &Args{A: a.Matrix, B: b.Matrix, C: c.Matrix, Epilogue: e}, rng)
				for i, got := range e.count {
					if got != 1 {
						t.Fatalf("%v %v %v: element %d,%d finished %d times", level, typ, s, i/n, i%n, got)
					}
				}
				compare(t, m, n, k, c, want, scale, false)
			}
		}
	}
}

// TestNoAllocation runs plans of every type without allocating.
func TestNoAllocation(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	const m, n, k = 60, 70, 80
	for _, level := range isa.Levels() {
		for _, typ := range []DType{F32, BF16, F16} {
			for flags := range 4 {
				ta, tb := flags&1 != 0, flags&2 != 0
				args := &Args{
					A:        newOperand(m, k, 0, typ, ta, uniform(rng)).Matrix,
					B:        newOperand(k, n, 0, typ, tb, uniform(rng)).Matrix,
					C:        newOperand(m, n, 0, typ, false, uniform(rng)).Matrix,
					Epilogue: &marks{n: n, count: make([]int, m*n)},
				}
				p := NewPlan(m, n, k, typ, typ, typ, ta, tb, Options{ISA: level})
				shared, worker := newGuarded(p.SharedBytes()).data, newGuarded(p.WorkerBytes()).data
				got := testing.AllocsPerRun(3, func() {
					for phase := range p.Phases() {
						for task := range p.Tasks(phase) {
							p.Run(phase, task, args, shared, worker)
						}
					}
				})
				if got != 0 {
					t.Errorf("%v %v %s: %v allocations", level, typ, name(m, k, n, ta, tb), got)
				}
			}
		}
	}
}

// TestConversions compares every float16 and bfloat16, and the float32 around
// their rounding boundaries, between the portable code and each instruction set.
func TestConversions(t *testing.T) {
	var floats []float32
	for h := range 1 << 16 {
		for _, f := range []float32{float16.FromBF16(uint16(h)), float16.FromF16(uint16(h))} {
			b := math.Float32bits(f)
			for _, d := range []uint32{0, 1, 0xfff, 0x1000, 0x1001, 0x7fff, 0x8000, 0x8001} {
				floats = append(floats, math.Float32frombits(b+d))
			}
		}
	}
	halves := make([]uint16, 1<<16+3) // not a multiple of any vector
	for h := range halves {
		halves[h] = uint16(h)
	}
	floats = append(floats, 1, 2, 3)
	for at := range 2 * (len(isa.Levels()) - 1) {
		level := isa.Levels()[1+at/2]
		m := machineFor(level, []DType{F32, BF16}[at%2])
		for _, typ := range []DType{BF16, F16} {
			wide, wantWide := make([]float32, len(halves)), make([]float32, len(halves))
			m.toF32[typ](1, len(halves), bytes(halves), 0, bytes(wide), 0)
			rowsGo(typ, F32)(1, len(halves), bytes(halves), 0, bytes(wantWide), 0)
			for i := range wide {
				if math.Float32bits(wide[i]) != math.Float32bits(wantWide[i]) {
					t.Fatalf("%v: %v %#04x widens to %v, want %v", level, typ, halves[i], wide[i], wantWide[i])
				}
			}
			narrow, wantNarrow := make([]uint16, len(floats)), make([]uint16, len(floats))
			m.fromF32[typ](1, len(floats), bytes(floats), 0, bytes(narrow), 0)
			rowsGo(F32, typ)(1, len(floats), bytes(floats), 0, bytes(wantNarrow), 0)
			for i := range narrow {
				if narrow[i] != wantNarrow[i] {
					t.Fatalf("%v: %v (%#08x) rounds to %v %#04x, want %#04x", level, floats[i], math.Float32bits(floats[i]), typ, narrow[i], wantNarrow[i])
				}
			}
		}
	}
}

func bytes[T any](s []T) *byte { return (*byte)(unsafe.Pointer(unsafe.SliceData(s))) }

// TestMicro multiplies blocks of every kind by packed panels and their parts.
func TestMicro(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	const m, n, k = 50, 75, 40
	for _, level := range isa.Levels() {
		for _, word := range []DType{F32, BF16} {
			for _, typ := range []DType{F32, BF16} {
				for flags := range 8 {
					ta, tb := flags&1 != 0, flags&2 != 0
					u, head := NewMicro(level, word, 6), 6 // of pairs
					if flags&4 != 0 {
						u, head = NewMicro(level, word, k), 8
					}
					a := newOperand(m, k, 3, typ, ta, uniform(rng))
					b := newOperand(k, n, 3, typ, tb, uniform(rng))
					c := newOperand(m, n, 3, F32, false, uniform(rng))
					want, scale := reference(m, n, k, a, b, c, true)
					packedB, packedA := newGuarded(u.PackedBytes(k, n)), newGuarded(u.BlockBytes(m, k, typ, ta))
					block := u.PackA(m, k, &a.Matrix, packedA.data)
					if typ == F32 && u.Word() == F32 {
						block = u.ViewA(&a.Matrix)
					}
					panels := u.PackB(k, n, &b.Matrix, packedB.data, newGuarded(u.ScratchBytes(k)).data)
					// The last panel, the first rows and the first terms apart from the rest.
					split := n / u.Cols() * u.Cols()
					top := 2 * u.Rows()
					at := func(i, j int) *float32 { return (*float32)(c.at(i, j)) }
					u.Mul(m, split, head, &block, panels, at(0, 0), c.Stride, true)
					rest := block.Rest(u, 0, head)
					u.Mul(m, split, k-head, &rest, panels.Rest(u, head, 0), at(0, 0), c.Stride, true)
					u.Mul(top, n-split, k, &block, panels.Rest(u, 0, split), at(0, split), c.Stride, true)
					rest = block.Rest(u, top, 0)
					u.Mul(m-top, n-split, k, &rest, panels.Rest(u, 0, split), at(top, split), c.Stride, true)
					packedA.check(t, "packed A")
					packedB.check(t, "packed B")
					t.Run(fmt.Sprintf("%v/%v/%d/%v/%s", level, word, u.Unit(), typ, name(m, k, n, ta, tb)), func(t *testing.T) {
						compare(t, m, n, k, c, want, scale, word != typ && u.Word() == BF16)
					})
				}
			}
		}
	}
}

// TestPackParts multiplies operands packed in parts, each of which begins with
// a word of its own.
func TestPackParts(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	const m, n = 41, 75
	parts := []int{7, 12, 1, 9}
	for _, level := range isa.Levels() {
		for _, word := range []DType{F32, BF16} {
			for _, typ := range []DType{F32, BF16, F16} {
				u := NewMicro(level, word)
				if typ == F16 && u.Word() == BF16 {
					continue // float16 is multiplied in float32
				}
				k, words := 0, 0
				for _, part := range parts {
					k, words = k+part, words+u.Words(part)
				}
				a := newOperand(m, k, 3, typ, true, uniform(rng))
				b := newOperand(k, n, 3, typ, false, uniform(rng))
				c := newOperand(m, n, 3, F32, false, uniform(rng))
				want, scale := reference(m, n, k, a, b, c, false)
				packedA := newGuarded(u.BlockBytes(m, words*u.Elems(), typ, true))
				packedB := newGuarded(u.PackedBytes(words*u.Elems(), n))
				var left Block
				var right Panels
				from, at := 0, 0
				for _, part := range parts {
					pa := Matrix{Data: a.Matrix.at(from, 0), Type: typ, Stride: a.Stride, Trans: true}
					pb := Matrix{Data: b.Matrix.at(from, 0), Type: typ, Stride: b.Stride}
					left = u.PackPartA(m, part, &pa, at, words, packedA.data)
					right = u.PackPartB(part, n, &pb, at, words, packedB.data)
					from, at = from+part, at+u.Words(part)
				}
				packedA.check(t, "packed A")
				packedB.check(t, "packed B")
				u.Mul(m, n, words*u.Elems(), &left, right, (*float32)(c.Matrix.at(0, 0)), c.Stride, false)
				t.Run(fmt.Sprintf("%v/%v/%v", level, word, typ), func(t *testing.T) {
					compare(t, m, n, k, c, want, scale, typ != word && u.Word() == BF16)
				})
			}
		}
	}
}

// TestSeeA: every element of op(A) is in exactly one of the parts that are seen,
// and a part is within one block of K.
func TestSeeA(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 4))
	for _, level := range isa.Levels() {
		for _, s := range [][3]int{{1, 1, 1}, {150, 170, 1100}, {400, 1500, 70}} {
			for _, typ := range []DType{F32, BF16} {
				m, n, k := s[0], s[1], s[2]
				a := newOperand(m, k, 0, typ, true, uniform(rng))
				b := newOperand(k, n, 0, typ, false, uniform(rng))
				c := newOperand(m, n, 0, F32, false, uniform(rng))
				p := NewPlan(m, n, k, typ, typ, F32, true, false, Options{ISA: level, Workers: 2, SharedLimit: 256 << 10})
				count, block := make([]int, m*k), make([]int, k)
				sequential(t, p, &Args{A: a.Matrix, B: b.Matrix, C: c.Matrix, SeeA: func(kb, k0, k1, i0, i1 int) {
					for x := k0; x < k1; x++ {
						block[x] = kb
						for i := i0; i < i1; i++ {
							count[i*k+x]++
						}
					}
				}}, rng)
				for i, got := range count {
					if got != 1 {
						t.Fatalf("%v %v: element (%d, %d) was seen %d times", level, s, i/k, i%k, got)
					}
				}
				if !slices.IsSorted(block) || block[k-1] != p.Blocks()-1 {
					t.Fatalf("%v %v: blocks of K %v, want %d in order", level, s, block, p.Blocks())
				}
			}
		}
	}
}

// The heights that are tried are those of all equal parts, each once, and there
// are no more of them for more rows.
func TestEqualHeights(t *testing.T) {
	for _, least := range []int{6, 12} {
		for rows := 1; rows < 700; rows++ {
			for _, unit := range []int{4, least} {
				var all []int
				for parts := ceil(rows, least); parts >= 1; parts-- {
					mb := roundUp(ceil(rows, parts), unit)
					if len(all) > 0 && mb > 120 {
						break
					}
					all = append(all, mb)
				}
				if got := equalHeights(rows, least, unit, 120); !slices.Equal(got, slices.Compact(all)) {
					t.Fatalf("%d rows in tiles of %d, unit %d: %v, want %v", rows, least, unit, got, slices.Compact(all))
				}
			}
		}
	}
	if n := len(equalHeights(1<<40, 12, 4, 120)); n > 30 {
		t.Errorf("%d heights are tried for 2^40 rows", n)
	}
}
