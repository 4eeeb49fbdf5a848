package cpu

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
	"unsafe"

	"github.com/snug-ml/snug/engine/cpu/blas"
	"github.com/snug-ml/snug/engine/cpu/gemm"
	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/internal/strictjson"
)

// Matmuls lets a BLAS library compute plain float32 matmuls where it measures faster than
// snug's kernels, shape by shape. The choice decides bits, so it is recorded.
type Matmuls struct {
	lib *blas.Library
	// begun is the record of the run that is resumed; nil: none.
	begun *matmulRecord
	// byLibrary are the choices of this process.
	byLibrary map[string]bool
}

// UseLibrary returns b with a library.
func (b Backend) UseLibrary(l *blas.Library) Backend {
	b.matmuls = &Matmuls{lib: l, byLibrary: map[string]bool{}}
	return b
}

// matmulRecord is the record that a run keeps with its checkpoints.
type matmulRecord struct {
	// Library names the library; empty: snug's kernels computed everything.
	Library  string         `json:"library"`
	Products []matmulChoice `json:"products"` // by their names
}

type matmulChoice struct {
	Product   string `json:"product"`
	ByLibrary bool   `json:"by_library"`
}

// Begin makes the programs that are loaded from now on compute their matmuls as a run did:
// record is what its image returned, empty if snug's kernels computed all of them. Nil
// ends that. Matmuls that are not in it, and those of another library, are measured.
func (b Backend) Begin(record []byte) error {
	m := b.matmuls
	if m == nil {
		return nil
	}
	var begun *matmulRecord
	if record != nil {
		begun = &matmulRecord{}
	}
	if len(record) > 0 {
		if err := strictjson.Unmarshal(record, begun); err != nil {
			return err
		}
		for i, p := range begun.Products {
			if i > 0 && begun.Products[i-1].Product >= p.Product {
				return fmt.Errorf("matmul %q comes after %q: want each once, sorted", p.Product, begun.Products[i-1].Product)
			}
		}
	}
	m.begun, m.byLibrary = begun, map[string]bool{}
	if begun != nil && begun.Library == m.lib.String() {
		for _, p := range begun.Products {
			m.byLibrary[p.Product] = p.ByLibrary
		}
	}
	return nil
}

// ownAlone reports whether the resumed run began with only snug's kernels.
func (m *Matmuls) ownAlone() bool { return m.begun != nil && m.begun.Library == "" }

// LibraryText says what computes matmuls.
func (b Backend) LibraryText() string {
	if b.matmuls == nil {
		return ""
	}
	return fmt.Sprintf("snug's kernels or %v (%s), whichever is faster for a shape when a program is loaded", b.matmuls.lib, b.matmuls.lib.Path())
}

// product is a matmul that a library can compute.
type product struct {
	m, n, k        int
	transA, transB bool
	accumulate     bool
}

func (q product) String() string {
	text := fmt.Sprintf("%dx%dx%d %c%c", q.m, q.k, q.n, "NT"[index(q.transA)], "NT"[index(q.transB)])
	if q.accumulate {
		text += " +"
	}
	return text
}

func index(b bool) int {
	if b {
		return 1
	}
	return 0
}

// products are the matmuls of a program that a library can compute, with the plans for
// both.
type products struct {
	*Matmuls
	plans    map[product]productPlans
	measured int
	// times are the seconds of the kernels and of the library, by matmul, if they were
	// measured for this program.
	times map[string][2]float64
}

type productPlans struct{ own, library *gemm.Plan }

// plan plans a matmul, and returns the workspace it needs whatever computes it. shown:
// parts of A are seen as they are read, which only the kernels support.
func (c *compiler) plan(q product, a, b, out gemm.DType, shown bool, opts gemm.Options) (p *gemm.Plan, shared, worker int) {
	opts.Accumulate = q.accumulate
	p = gemm.NewPlan(q.m, q.n, q.k, a, b, out, q.transA, q.transB, opts)
	shared, worker = p.SharedBytes(), p.WorkerBytes()
	s := c.products
	if s == nil || s.ownAlone() || shown || !gemm.Served(a, b, out, opts) {
		return p, shared, worker
	}
	opts.Library = sgemm{s.lib}
	by := gemm.NewPlan(q.m, q.n, q.k, a, b, out, q.transA, q.transB, opts)
	s.plans[q] = productPlans{p, by}
	worker = max(worker, by.WorkerBytes())
	if s.byLibrary[q.String()] {
		p = by
	}
	return p, shared, worker
}

// sgemm adapts a library to package gemm's interface.
type sgemm struct{ *blas.Library }

func (sgemm) CallBytes() int { return blas.CallBytes }

func (l sgemm) Sgemm(m, n, k int, a, b, c gemm.Matrix, accumulate bool, scratch []byte) {
	beta := float32(0)
	if accumulate {
		beta = 1
	}
	l.Library.Sgemm(m, n, k, a.Data, a.Stride, a.Trans, b.Data, b.Stride, b.Trans, beta, c.Data, c.Stride, scratch)
}

// gain is how much faster a library must be to be chosen: less is within measurement
// noise. A turn of a measurement has about turnFLOPs, a millisecond, or one matmul. Tests
// set both.
var gain, turnFLOPs = 1.05, 5e7

// choose measures the matmuls for which no choice is known, with the workers and the
// workspace that will compute them, in the arena, which is still empty and is left all
// zeros. It reports whether the library computes any.
func (s *products) choose(m *Machine, arena []byte) (changed bool, err error) {
	m.pool.start()
	defer m.pool.stop()
	for q, p := range s.plans {
		name := q.String()
		if _, known := s.byLibrary[name]; known {
			continue
		}
		s.byLibrary[name] = false
		sizes := [3]int{4 * q.m * q.k, 4 * q.k * q.n, 4 * q.m * q.n}
		var at [3]int
		end := 0
		for i, n := range sizes {
			at[i], end = end, end+alignUp(n, 64)
		}
		if end > len(arena) {
			continue // one of its operands is workspace
		}
		memory := arena[:end]
		times, err := s.compare(q, p, m, memory, at)
		clear(memory)
		if err != nil {
			return changed, fmt.Errorf("the matmul %s: %w (with hardware.blas: off, snug's kernels compute every matmul)", name, err)
		}
		s.measured++
		s.times[name] = times
		s.byLibrary[name] = times[0] > times[1]*gain
		changed = changed || s.byLibrary[name]
	}
	return changed, nil
}

// compare returns the seconds of a matmul by the kernels and by the library, after
// comparing their results: operands are small multiples of 1/8, whose sums are exact in
// float32 in any order.
func (s *products) compare(q product, p productPlans, m *Machine, memory []byte, at [3]int) (best [2]float64, err error) {
	part := func(i, n int) []float32 { return unsafe.Slice((*float32)(unsafe.Pointer(&memory[at[i]])), n) }
	a, b, c := part(0, q.m*q.k), part(1, q.k*q.n), part(2, q.m*q.n)
	for i := range a {
		a[i] = float32(i*7%13-6) / 8
	}
	for i := range b {
		b[i] = float32(i*5%11-5) / 8
	}
	lda, ldb := q.k, q.n
	if q.transA {
		lda = q.m
	}
	if q.transB {
		ldb = q.k
	}
	args := gemm.Args{
		A: gemm.Matrix{Data: unsafe.Pointer(&a[0]), Stride: lda, Trans: q.transA},
		B: gemm.Matrix{Data: unsafe.Pointer(&b[0]), Stride: ldb, Trans: q.transB},
		C: gemm.Matrix{Data: unsafe.Pointer(&c[0]), Stride: q.n},
	}
	run := func(p *gemm.Plan) {
		for phase := range p.Phases() {
			m.pool.region(p.Tasks(phase), func(task, w int) { p.Run(phase, task, &args, m.shared, m.scratch[w]) })
		}
	}
	var sums [2]float64
	for i, by := range []*gemm.Plan{p.own, p.library} {
		clear(c)
		run(by)
		for j, v := range c {
			sums[i] += float64(v) * float64(j%31+1)
		}
	}
	if sums[0] != sums[1] {
		return best, fmt.Errorf("%v computes another product than snug's kernels", s.lib)
	}
	best = [2]float64{math.Inf(1), math.Inf(1)}
	// In turns, as the machine may be busy.
	repeat := 1 + int(turnFLOPs/(2*float64(q.m)*float64(q.n)*float64(q.k)))
	for range 4 {
		for i, by := range []*gemm.Plan{p.own, p.library} {
			start := time.Now()
			for range repeat {
				run(by)
			}
			best[i] = min(best[i], time.Since(start).Seconds()/float64(repeat))
		}
	}
	return best, nil
}

// record says what computes the matmuls of the program.
func (s *products) record() *matmulRecord {
	r := &matmulRecord{Products: []matmulChoice{}}
	if s.ownAlone() {
		return r
	}
	r.Library = s.lib.String()
	names := map[string]bool{}
	for q := range s.plans {
		names[q.String()] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		r.Products = append(r.Products, matmulChoice{name, s.byLibrary[name]})
	}
	return r
}

// String returns how many matmuls the library computes, with a hash of which; empty if it
// computes none.
func (r *matmulRecord) String() string {
	n, h := 0, sha256.New()
	for _, p := range r.Products {
		if p.ByLibrary {
			n++
			_, _ = fmt.Fprintln(h, p.Product)
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d shapes of matmuls by %s (%s)", n, len(r.Products), r.Library, hex.EncodeToString(h.Sum(nil)[:4]))
}

// Arithmetic implements engine's optional interface of images.
func (x *executable) Arithmetic() string {
	text := x.on.Arithmetic()
	if x.products != nil {
		if by := x.products.record().String(); by != "" {
			text += ", " + by
		}
	}
	return text
}

// Matmuls implements engine's optional interface of images: the choices as a record, and a
// text about them.
func (x *executable) Matmuls() (record []byte, text string) {
	s := x.products
	if s == nil {
		return nil, ""
	}
	r := s.record()
	record, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		panic(err) // cannot fail: strings and booleans
	}
	switch {
	case s.ownAlone():
		text = "matmuls: snug's kernels, with which this run began"
	case len(r.Products) == 0:
		text = fmt.Sprintf("matmuls: snug's kernels, as none is a plain one in fp32, which %v could compute", s.lib)
	default:
		text = "matmuls: " + cmp.Or(r.String(), fmt.Sprintf("snug's kernels, faster than %v in all of %s", s.lib, size.Of(len(r.Products), "shape")))
	}
	if s.measured > 0 {
		text += fmt.Sprintf(", %d measured now", s.measured)
	}
	return append(record, '\n'), text
}
