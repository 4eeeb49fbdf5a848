package cuda

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/cuda/kernels"
	"github.com/snug-ml/snug/internal/size"
)

// Trial is the result of trying one of the things that programs do on a card, for `doctor`.
type Trial struct {
	What    string `json:"what"`
	Found   string `json:"found,omitempty"`
	Problem string `json:"problem,omitempty"` // with advice on what to do about it
	Skipped string `json:"skipped,omitempty"` // why it was not tried
	Lost    bool   `json:"lost,omitempty"`    // the problem made the card unusable to this process
}

// Each trial's kernel writes triedWords words, and copies move triedBytes bytes.
const (
	triedWords = 1 << 16
	triedBytes = 16 << 20
)

// rig holds what trials share.
type rig struct {
	ctx          driver.Context
	memory       driver.Ptr
	here, there  []byte // page-locked
	stream       driver.Stream
	began, ended driver.Event
	module       driver.Module
	fill         driver.Function // nil: it could not be loaded
}

// Try tests what a program needs of an opened card, one thing after another, and continues after failures
// where it can.
func Try(ctx driver.Context) (list []Trial) {
	r := &rig{ctx: ctx}
	lost := false
	for _, s := range []struct {
		what string
		try  func() (string, error)
	}{{"memory", r.reserve}, {"assembler", r.assemble}, {"kernel", r.compute}, {"copies", r.copies}, {"graph", r.graph}} {
		t, err := Trial{What: s.what}, error(gone)
		if !lost {
			t.Found, err = s.try()
		}
		var skipped notTried
		switch {
		case errors.As(err, &skipped):
			t.Skipped = string(skipped)
		case err != nil:
			t.Found, t.Problem, t.Lost = "", err.Error(), Lost(err)
		}
		lost = lost || t.Lost
		list = append(list, t)
	}
	if err := r.close(); err != nil && !lost { // everything is freed with a lost card
		list = append(list, Trial{What: "release", Problem: err.Error(), Lost: Lost(err)})
	}
	return list
}

// notTried is why a trial was skipped.
type notTried string

func (n notTried) Error() string { return string(n) }

const (
	noMemory notTried = "no memory could be reserved"
	noKernel notTried = "there is no kernel"
	gone     notTried = "the card is lost to this process"
)

// ready returns an error if something is missing to run the kernel.
func (r *rig) ready() error {
	switch {
	case r.there == nil:
		return noMemory
	case r.fill == nil:
		return noKernel
	}
	return nil
}

// inOrder makes the calls in order up to the first that fails.
func inOrder(calls ...func() error) error {
	for _, call := range calls {
		if err := call(); err != nil {
			return err
		}
	}
	return nil
}

func (r *rig) reserve() (found string, err error) {
	if r.stream, err = r.ctx.NewStream(); err != nil {
		return "", err
	}
	for _, e := range []*driver.Event{&r.began, &r.ended} {
		if *e, err = r.ctx.NewEvent(true); err != nil {
			return "", err
		}
	}
	if r.memory, err = r.ctx.Alloc(triedBytes); err != nil {
		return "", err
	}
	for _, b := range []*[]byte{&r.here, &r.there} {
		if *b, err = r.ctx.AllocHost(triedBytes); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%s reserved on the card, %s page-locked on the host", size.Bytes(triedBytes), size.Bytes(2*triedBytes)), nil
}

func (r *rig) assemble() (string, error) {
	c := &code{target: kernels.Target(r.ctx.Card().Capability())}
	text, _, err := c.module([]string{"fill"})
	if err != nil {
		return "", err
	}
	began := time.Now()
	if r.module, err = r.ctx.Load(text); err != nil {
		return "", err
	}
	if r.fill, err = r.module.Function("fill"); err != nil {
		return "", err
	}
	return fmt.Sprintf("a kernel of sm_%d made ready in %.3g s", c.target, time.Since(began).Seconds()), nil
}

// launch queues the kernel, which writes v to all words.
func (r *rig) launch(v float32) error {
	var p params
	p.u64(uint64(r.memory)).u64(triedWords).f32(float64(v))
	return r.stream.Launch(r.fill, driver.Launch{Grid: [3]uint32{triedWords / 1024, 1, 1}, Block: [3]uint32{256, 1, 1}, Params: p.bytes})
}

// back queues the copy of the words to the host.
func (r *rig) back() error { return r.stream.CopyOut(r.there[:4*triedWords], r.memory) }

// all checks that every word on the host is v.
func (r *rig) all(v float32) error {
	for i := range triedWords {
		if got := math.Float32frombits(binary.LittleEndian.Uint32(r.there[4*i:])); got != v {
			return fmt.Errorf("number %d is %v, not %v: %s", i, got, v, wrong)
		}
	}
	return nil
}

const wrong = "the card, its memory or the driver is faulty: restart the machine; if it comes back, have the card tested (`dcgmi diag -r 3`)"

func (r *rig) compute() (string, error) {
	if err := r.ready(); err != nil {
		return "", err
	}
	if err := inOrder(func() error { return r.launch(2.5) }, r.back, r.stream.Sync, func() error { return r.all(2.5) }); err != nil {
		return "", err
	}
	return fmt.Sprintf("ran, and its %d numbers are right", triedWords), nil
}

func (r *rig) copies() (string, error) {
	if r.there == nil {
		return "", noMemory
	}
	for i := range r.here {
		r.here[i] = byte(i*7 + i>>8)
	}
	clear(r.there)
	rate := func(queue func() error) (string, error) {
		record := func(e driver.Event) func() error { return func() error { return r.stream.Record(e) } }
		if err := inOrder(record(r.began), queue, record(r.ended), r.stream.Sync); err != nil {
			return "", err
		}
		took, err := r.ended.Since(r.began)
		if took <= 0 {
			return "", err
		}
		return fmt.Sprintf(" at %.3g GB/s", triedBytes/took.Seconds()/1e9), err
	}
	in, err := rate(func() error { return r.stream.CopyIn(r.memory, r.here) })
	if err != nil {
		return "", err
	}
	out, err := rate(func() error { return r.stream.CopyOut(r.there, r.memory) })
	if err != nil {
		return "", err
	}
	if !bytes.Equal(r.here, r.there) {
		return "", fmt.Errorf("%s came back changed: %s", size.Bytes(triedBytes), wrong)
	}
	return fmt.Sprintf("%s to the card%s, and back%s, unchanged", size.Bytes(triedBytes), in, out), nil
}

func (r *rig) graph() (found string, err error) {
	if err := r.ready(); err != nil {
		return "", err
	}
	if err := r.stream.BeginCapture(); err != nil {
		return "", err
	}
	err = inOrder(func() error { return r.launch(-1.5) }, r.back)
	g, e := r.stream.EndCapture()
	if e != nil {
		return "", errors.Join(err, e)
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	if err == nil {
		err = r.stream.Upload(g)
	}
	for range 2 {
		clear(r.there)
		if err == nil {
			err = inOrder(func() error { return r.stream.Clear(r.memory, 4*triedWords) }, func() error { return r.stream.Replay(g) }, r.stream.Sync, func() error { return r.all(-1.5) })
		}
	}
	return "captured and replayed twice, with the right numbers", err
}

// close frees everything.
func (r *rig) close() error {
	var errs []error
	if r.module != nil {
		errs = append(errs, r.module.Unload())
	}
	for _, e := range []driver.Event{r.began, r.ended} {
		if e != nil {
			errs = append(errs, e.Close())
		}
	}
	if r.stream != nil {
		errs = append(errs, r.stream.Close())
	}
	for _, b := range [][]byte{r.here, r.there} {
		if b != nil {
			errs = append(errs, r.ctx.FreeHost(b))
		}
	}
	if r.memory != 0 {
		errs = append(errs, r.ctx.Free(r.memory))
	}
	return errors.Join(errs...)
}
