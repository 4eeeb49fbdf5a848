package cuda

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/cuda/cublaslt"
	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/graph"
)

// choose decides for each product of the program whether cuBLASLt computes it. Products whose choice is not
// known, from the run being continued or from before, are measured in the arena, which is still empty. What
// the library cannot do is left to snug's kernels; only a lost card is an error.
func (x *image) choose() error {
	on := x.on
	if on.library == nil || len(x.code.products) == 0 {
		return nil
	}
	l := on.library
	before, _, err := x.ctx.Memory()
	if err != nil {
		return err
	}
	// `doctor` says why the library is not used; without it snug's kernels compute everything.
	x.handle, _ = on.openLibrary()
	usable := x.handle != nil
	if usable {
		if err := x.assemble(x.code.besides()); err != nil {
			return err
		}
	}
	m := on.maker()
	chosen, measured := known{}, known{}
	stored := known{}
	if usable {
		stored = on.kept().read(m)
	}
	for _, r := range x.code.products {
		name := r.name()
		c := Choice{Product: name}
		if usable {
			was, found, may := l.choice(m, stored, name)
			ok := false
			if found {
				var err error
				if ok, err = x.usable(r, was); err != nil {
					return err
				}
			}
			switch {
			case ok:
				c = was
			case may:
				var err error
				if c, err = x.measure(r); err != nil {
					return fmt.Errorf("timing the matmul %s: %w (with hardware.cublas: off, snug's kernels compute every matmul)", name, err)
				}
				measured[name] = c
			}
		}
		if len(c.Algorithm) > 0 {
			r.choice = &cublaslt.Candidate{Algorithm: cublaslt.Algorithm(c.Algorithm), Workspace: c.Workspace}
		}
		chosen[name] = c
		if _, ok := l.chosen[name]; !ok {
			l.chosen[name] = c
		}
	}
	if len(measured) > 0 {
		for name := range measured { // stored choices that did not fit this program alone stay
			if _, ok := stored[name]; ok {
				delete(measured, name)
			}
		}
		on.kept().add(m, measured)
	}
	x.choices, x.measured = chosen.choices(m), len(measured)
	after, _, err := x.ctx.Memory()
	x.aside = before - after
	return err
}

// usable reports whether a choice made earlier can be kept here. An algorithm is run once, so that its code
// is loaded before graphs are captured.
func (x *image) usable(r *replaced, c Choice) (ok bool, err error) {
	if len(c.Algorithm) == 0 {
		return true, nil
	}
	if c.Workspace > r.limit {
		return false, nil
	}
	algorithm := cublaslt.Algorithm(c.Algorithm)
	err = x.ctx.Do(func() (err error) {
		var workspace int64
		workspace, ok, err = x.handle.Check(r.Product, algorithm)
		ok = ok && workspace <= c.Workspace
		return err
	})
	if err == nil && ok {
		err = x.library(r.at, algorithm, x.bases(0))
	}
	if e := x.compute.Sync(); e != nil {
		return false, e
	}
	return ok && err == nil, nil
}

// library queues a product for cuBLASLt.
func (x *image) library(r *replaceable, a cublaslt.Algorithm, bases *[regions]driver.Ptr) error {
	return x.ctx.Do(func() error {
		return x.handle.Run(r.Product, a, r.operands(bases), x.compute.Handle())
	})
}

// worthwhile is the fraction of the time of snug's kernels that cuBLASLt may take to be chosen: smaller
// differences are within the error of measurement.
const worthwhile = 0.97

// measure finds what is fastest for a product. A candidate must compute what snug's kernels do, twice with
// the same bits.
func (x *image) measure(r *replaced) (c Choice, err error) {
	c.Product = r.name()
	var list []cublaslt.Candidate
	err = x.ctx.Do(func() (err error) {
		list, err = x.handle.Candidates(r.Product, r.limit)
		return err
	})
	if err != nil || len(list) == 0 {
		return c, x.lost(err)
	}
	bases := x.bases(0)
	t, err := x.newTrial(r, bases)
	if err != nil {
		return c, err
	}
	queue := func(launches []launch) error {
		for _, l := range launches {
			b := x.bind(l, bases)
			if err := x.compute.Launch(b.f, b.l); err != nil {
				return b.failed(err)
			}
		}
		return nil
	}
	ours := func() error { return queue(r.ours) }
	want, err := t.result(ours)
	if err != nil {
		return c, err
	}
	if err := x.warm(ours); err != nil {
		return c, err
	}
	best, err := x.timed(ours, math.MaxInt64)
	if err != nil {
		return c, err
	}
	c.Ours = microseconds(best)
	limit := time.Duration(worthwhile * float64(best))
	for _, a := range list {
		run := func() error {
			if err := queue(r.at.before); err != nil {
				return err
			}
			if err := x.library(r.at, a.Algorithm, bases); err != nil {
				return err
			}
			return queue(r.at.after)
		}
		took, err := t.try(run, want, limit)
		if err != nil {
			return c, err
		}
		if took == 0 {
			continue
		}
		if c.Library == 0 || microseconds(took) < c.Library {
			c.Library = microseconds(took)
		}
		if took < limit {
			limit = took
			c.Algorithm, c.Workspace = a.Algorithm[:], a.Workspace
		}
	}
	if x.on.library.Once {
		return c, nil
	}
	// Clocks may have risen further since snug's kernels were timed.
	again, err := x.timed(ours, best)
	if err != nil || again >= best {
		return c, err
	}
	c.Ours = microseconds(again)
	if limit >= time.Duration(worthwhile*float64(again)) {
		c.Algorithm, c.Workspace = nil, 0
	}
	return c, nil
}

// warmTime is how long a card computes before its clocks are those of a run; warmReplays bounds how often a
// product too short for events is repeated.
const (
	warmTime    = 100 * time.Millisecond
	warmReplays = 1000
)

// warm repeats a product before the first measurement of a program, as the clocks of an idle card are low.
func (x *image) warm(run func() error) error {
	if x.warmed || x.on.library.Once {
		return nil
	}
	x.warmed = true
	once, err := x.repeated(run, 1, 1)
	if err != nil {
		return err
	}
	n := batch(once)
	_, err = x.repeated(run, n, min(int(warmTime/max(time.Duration(n)*once, 1)), warmReplays))
	return err
}

func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// lost returns an error of the driver, or nil for one of the library, which leaves the product to snug's
// kernels.
func (x *image) lost(err error) error {
	var e *cublaslt.Error
	if errors.As(err, &e) {
		return x.compute.Sync() // reports errors that its kernels left behind
	}
	return err
}

// trial compares cuBLASLt's results with those of snug's kernels.
type trial struct {
	x     *image
	r     *replaced
	bases *[regions]driver.Ptr
}

// newTrial fills the operands with random numbers: a card draws less power for zeros, and would be faster
// than in a real run.
func (x *image) newTrial(r *replaced, bases *[regions]driver.Ptr) (*trial, error) {
	t, in := &trial{x, r, bases}, r.at.factors
	rows, row := r.Batch*r.M, r.K
	if r.TransA {
		rows, row = r.Batch*r.K, r.M
	}
	pitch := cmp.Or(r.PitchA, row)
	err := errors.Join(t.scatter(r.at.a, int64(rows)*int64(pitch), in), t.scatter(r.at.b, int64(r.Batch)*int64(r.K)*int64(r.N), in), t.fill(r.at.epilogue.in))
	if gap := int64(pitch-row) * in.Size(); gap > 0 { // holds zeros, which snug's kernels read
		for i := range rows {
			at := r.at.a.plus((int64(i)*int64(pitch) + int64(row)) * in.Size())
			err = errors.Join(err, x.compute.Clear(bases[at.region]+driver.Ptr(at.offset), gap))
		}
	}
	return t, err
}

// fill fills operands or results of the epilogue with numbers, but not a counter of runs.
func (t *trial) fill(list []placed) error {
	for _, o := range list {
		if _, ok := dataTypes[o.dtype]; !ok {
			continue
		}
		if err := t.scatter(o.at, t.elems(o), o.dtype); err != nil {
			return err
		}
	}
	return nil
}

// elems is the number of elements of an operand of the epilogue.
func (t *trial) elems(o placed) int64 { return o.elems(t.r.Batch*t.r.M, t.r.N) }

// period is how many numbers are generated before they repeat: a prime, so that rows differ.
const period = 65521

// numbers are random between -1 and 1, but the same ones each time.
func numbers(d graph.DType, n int64) []byte {
	rng := rand.New(rand.NewPCG(1, 2))
	elems := make([]float64, min(n, period))
	for i := range elems {
		elems[i] = 2*rng.Float64() - 1
	}
	t := engine.Tensor{Type: graph.T(d, len(elems)), Data: make([]byte, int64(len(elems))*d.Size())}
	t.SetFloat64s(elems)
	return t.Data
}

// scatter fills memory with numbers.
func (t *trial) scatter(at address, elems int64, d graph.DType) error {
	part, to := numbers(d, elems), t.bases[at.region]+driver.Ptr(at.offset)
	left := elems * d.Size()
	if left > int64(len(part)) { // few large copies
		part = bytes.Repeat(part, stagingBytes/len(part))
	}
	for left > 0 {
		n := min(left, int64(len(part)))
		if err := t.x.upload(to, part[:n]); err != nil {
			return err
		}
		to, left = to+driver.Ptr(n), left-n
	}
	return nil
}

// comparedBytes is how much of a result is compared at each end.
const comparedBytes = 512 << 10

// result fills the results with numbers, as one may be an operand too, runs a product once, and returns the
// first and the last elements of each result.
func (t *trial) result(run func() error) (parts [][]byte, err error) {
	ep := t.r.at.epilogue
	if err := t.fill(ep.out); err != nil {
		return nil, err
	}
	if err := run(); err != nil {
		return nil, err
	}
	if err := t.x.compute.Sync(); err != nil {
		return nil, err
	}
	for _, o := range ep.out {
		size := t.elems(o) * o.dtype.Size()
		n := min(size, comparedBytes)
		at := int64(t.bases[o.at.region]-t.x.memory) + o.at.offset
		both := make([]byte, 2*n)
		if err := errors.Join(t.x.download(both[:n], at), t.x.download(both[n:], at+size-n)); err != nil {
			return nil, err
		}
		parts = append(parts, both)
	}
	return parts, nil
}

// try returns the time of a candidate; 0 if it cannot be taken, because it fails, computes something else, or
// differs between two runs. What takes as long as limit or longer is not taken either, so it is not checked.
func (t *trial) try(run func() error, want [][]byte, limit time.Duration) (time.Duration, error) {
	// Its code is loaded before a graph is captured.
	if err := run(); err != nil {
		return 0, t.x.lost(err)
	}
	if err := t.x.compute.Sync(); err != nil {
		return 0, err
	}
	took, err := t.x.timed(run, limit)
	if err != nil || took >= limit {
		return took, t.x.lost(err)
	}
	var got [2][][]byte
	for i := range got {
		if got[i], err = t.result(run); err != nil {
			return 0, t.x.lost(err)
		}
	}
	if !slices.EqualFunc(got[0], got[1], bytes.Equal) || !t.agrees(got[0], want) {
		return 0, nil
	}
	return took, nil
}

// agrees reports whether results are equal but for rounding: to 16 bits, and of sums in another order.
func (t *trial) agrees(got, want [][]byte) bool {
	ep := t.r.at.epilogue
	for i, o := range ep.out {
		n := len(want[i]) / int(o.dtype.Size())
		a := engine.Tensor{Type: graph.T(o.dtype, n), Data: got[i]}.Float64s()
		b := engine.Tensor{Type: graph.T(o.dtype, n), Data: want[i]}.Float64s()
		var most float64
		for _, v := range b {
			most = max(most, math.Abs(v))
		}
		rounding := map[graph.DType]float64{graph.F32: 1e-4, graph.F16: 1.0 / 256, graph.BF16: 1.0 / 64}
		tolerance := max(rounding[ep.first], rounding[o.dtype])
		if t.r.TF32 { // factors lose 13 bits, rounded or cut off
			tolerance = max(tolerance, 1.0/256)
		}
		for k := range a {
			if !(math.Abs(a[k]-b[k]) <= tolerance*most) { // NaN fails too
				return false
			}
		}
	}
	return true
}

// A measurement repeats a product in a graph, as it will run, often enough to take about batchTime, but at
// most batchMost times; the best of several replays counts.
const (
	batchTime    = 2 * time.Millisecond
	batchMost    = 20
	batchReplays = 3
)

// timed is the time that a product takes on the card. A product that clearly takes longer than limit is not
// measured further.
func (x *image) timed(run func() error, limit time.Duration) (time.Duration, error) {
	once, err := x.repeated(run, 1, 1)
	if err != nil {
		return 0, err
	}
	if x.on.library.Once || once/2 > limit {
		return max(once, 1), nil
	}
	took, err := x.repeated(run, batch(once), batchReplays)
	if err != nil {
		return 0, err
	}
	return max(took, 1), nil
}

// batch is how many products of this time are measured together.
func batch(once time.Duration) int { return min(max(int(batchTime/max(once, 1)), 1), batchMost) }

// repeated is the time of one of n products in a graph, the best of several replays after a warm-up.
func (x *image) repeated(run func() error, n, replays int) (best time.Duration, err error) {
	began, err := x.ctx.NewEvent(true)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, began.Close()) }()
	ended, err := x.ctx.NewEvent(true)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, ended.Close()) }()
	if err := x.compute.BeginCapture(); err != nil {
		return 0, err
	}
	for range n {
		if err = run(); err != nil {
			break
		}
	}
	g, e := x.compute.EndCapture()
	if e != nil {
		return 0, errors.Join(err, e)
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	if err != nil {
		return 0, err
	}
	if err := errors.Join(x.compute.Upload(g), x.compute.Replay(g)); err != nil {
		return 0, err
	}
	best = math.MaxInt64
	for range replays {
		if err := errors.Join(x.compute.Record(began), x.compute.Replay(g), x.compute.Record(ended), ended.Sync()); err != nil {
			return 0, err
		}
		took, err := ended.Since(began)
		if err != nil {
			return 0, err
		}
		best = min(best, took)
	}
	return best / time.Duration(n), nil
}
