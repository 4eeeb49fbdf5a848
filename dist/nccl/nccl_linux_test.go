//go:build (amd64 || arm64) && !nocuda

package nccl_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/snug-ml/snug/dist"
	"github.com/snug-ml/snug/dist/disttest"
	"github.com/snug-ml/snug/dist/nccl"
	"github.com/snug-ml/snug/internal/dynlib"
	"github.com/snug-ml/snug/internal/dynlib/dynlibtest"
	"github.com/snug-ml/snug/internal/offheap"
)

// standIn builds the library in testdata, with definitions, and returns its path.
func standIn(t *testing.T, definitions ...string) string {
	t.Helper()
	return dynlibtest.Build(t, "libnccl.so.2.0", "testdata/nccl.c", definitions...)
}

// open opens the stand-in.
func open(t *testing.T, path string) *nccl.Library {
	t.Helper()
	l, err := nccl.Open([]string{path, "/elsewhere/libcuda.so"})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// variable returns a counter that the stand-in keeps.
func variable(t *testing.T, path, name string) int {
	t.Helper()
	h, err := dynlib.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	var at uintptr
	if missing := dynlib.Find(h, map[string]*uintptr{name: &at}); len(missing) > 0 {
		t.Fatalf("the stand-in has no %s", name)
	}
	return int(atomic.LoadInt32(*(**int32)(unsafe.Pointer(&at))))
}

// stream counts the stand-in's work under way on it. It carries no other work.
type stream struct {
	pending, reached int64
	bound            int
}

func (s *stream) Bind() error     { s.bound++; return nil }
func (s *stream) Handle() uintptr { return uintptr(unsafe.Pointer(&s.pending)) }
func (s *stream) Done() (bool, error) {
	atomic.StoreInt64(&s.reached, 1)
	return atomic.LoadInt64(&s.pending) == 0, nil
}

// memory allocates a buffer that stays where it is.
func memory(n int) (nccl.Buffer, []byte) {
	b, err := offheap.Allocate(int64(max(1, n)))
	if err != nil {
		panic(err)
	}
	return nccl.Buffer{Address: uintptr(unsafe.Pointer(&b[0])), Bytes: int64(n)}, b[:n]
}

// text is what rank from sends to rank to: nothing at all to some.
func text(from, to, n int) []byte {
	return bytes.Repeat([]byte(fmt.Sprintf("%d to %d;", from, to)), n*((from+to)%3))
}

func exchanges(c *nccl.Communicator, me, world int) error {
	for _, n := range []int{0, 1, 1000, 40_000} {
		send, recv, parts := make([]nccl.Buffer, world), make([]nccl.Buffer, world), make([]nccl.Buffer, world)
		got, gathered := make([][]byte, world), make([][]byte, world)
		for r := range world {
			var b []byte
			send[r], b = memory(len(text(me, r, n)))
			copy(b, text(me, r, n))
			recv[r], got[r] = memory(len(text(r, me, n)))
			parts[r], gathered[r] = memory(len(text(r, 1, n)))
		}
		copy(gathered[me], text(me, 1, n))
		if err := errors.Join(c.AllToAll(send, recv), c.AllGather(parts)); err != nil {
			return err
		}
		for r := range world {
			if !bytes.Equal(got[r], text(r, me, n)) || !bytes.Equal(gathered[r], text(r, 1, n)) {
				return fmt.Errorf("rank %d has something else from rank %d", me, r)
			}
		}
		for root := range world {
			all, b := memory(len(text(root, 2, n)))
			if me == root {
				copy(b, text(root, 2, n))
			}
			if err := c.Broadcast(root, all); err != nil || !bytes.Equal(b, text(root, 2, n)) {
				return fmt.Errorf("broadcast: %w", err)
			}
		}
	}
	return nil
}

func TestExchanges(t *testing.T) {
	for _, definitions := range [][]string{{"VERSION=21403"}, {"VERSION=22304", "SCALABLE"}} {
		path := standIn(t, definitions...)
		l := open(t, path)
		for world := 1; world <= 4; world++ {
			errs := disttest.Ranks(t, world, func(g dist.Watched) error {
				s := &stream{}
				c, err := l.Connect(context.Background(), g, s)
				if err != nil {
					return err
				}
				err = exchanges(c, g.Rank(), world)
				if s.bound != 1 {
					err = errors.Join(err, fmt.Errorf("the stream was bound %d times", s.bound))
				}
				return errors.Join(err, c.Leave(err), c.Leave(nil))
			})
			if err := errors.Join(errs...); err != nil {
				t.Errorf("%v, %d ranks: %v", definitions, world, err)
			}
		}
		if n := variable(t, path, "standin_destroyed"); n != 1+2+3+4 {
			t.Errorf("%v: %d communicators were destroyed, want 10", definitions, n)
		}
		if n := variable(t, path, "standin_aborted"); n != 0 {
			t.Errorf("%v: %d communicators were aborted", definitions, n)
		}
		if n := variable(t, path, "standin_by_address"); (n > 0) != (len(definitions) > 1) {
			t.Errorf("%v: the id went by its address %d times", definitions, n)
		}
	}
}

// A rank that fails ends those that wait for it, in the midst of an exchange or while they
// connect.
func TestFailureAborts(t *testing.T) {
	path := standIn(t, "VERSION=22304", "SCALABLE")
	l := open(t, path)
	for _, connects := range []bool{true, false} {
		errs := disttest.Ranks(t, 3, func(g dist.Watched) error {
			if !connects && g.Rank() == 1 {
				// What all ranks do before they connect.
				if _, err := dist.AllGatherSized(g, []byte(l.Version().String())); err != nil {
					return err
				}
				if err := g.Broadcast(0, make([]byte, 128)); err != nil {
					return err
				}
				return errors.New("enough")
			}
			c, err := l.Connect(context.Background(), g, &stream{})
			if err != nil {
				return err
			}
			if g.Rank() == 1 {
				err = errors.New("enough")
			} else {
				err = exchanges(c, g.Rank(), g.World())
			}
			return errors.Join(err, c.Leave(err))
		})
		for r, err := range errs {
			if err == nil || !strings.Contains(err.Error(), "enough") {
				t.Errorf("connects: %v: rank %d: %v", connects, r, err)
			}
		}
		if made, aborted := variable(t, path, "standin_made"), variable(t, path, "standin_aborted"); aborted != made || connects && made != 3 {
			t.Errorf("connects: %v: of %d communicators %d were aborted", connects, made, aborted)
		}
	}
}

// An error that the library reports later ends the communicator, and the other rank's.
func TestAsynchronousErrorAborts(t *testing.T) {
	path := standIn(t, "VERSION=22304")
	l := open(t, path)
	errs := disttest.Ranks(t, 2, func(g dist.Watched) error {
		c, err := l.Connect(context.Background(), g, &stream{})
		if err != nil {
			return err
		}
		own, _ := memory(2)
		other, _ := memory(2 + g.Rank()) // rank 1 expects more than there is
		parts := []nccl.Buffer{own, own}
		parts[1-g.Rank()] = other
		err = c.AllGather(parts)
		return errors.Join(err, c.Leave(err))
	})
	for r, err := range errs {
		if err == nil || !strings.Contains(err.Error(), "error 3: internal error: the last one") {
			t.Errorf("rank %d: %v", r, err)
		}
	}
	if n := variable(t, path, "standin_aborted"); n != 2 {
		t.Errorf("%d communicators were aborted, want 2", n)
	}
}

func TestWrongCalls(t *testing.T) {
	l := open(t, standIn(t, "VERSION=22304"))
	errs := disttest.Ranks(t, 1, func(g dist.Watched) error {
		c, err := l.Connect(context.Background(), g, &stream{})
		if err != nil {
			return err
		}
		a, _ := memory(1)
		b, _ := memory(2)
		for _, err := range []error{c.AllToAll(nil, nil), c.AllGather(nil), c.AllToAll([]nccl.Buffer{a}, []nccl.Buffer{b}), c.Broadcast(1, a)} {
			if err == nil {
				return errors.New("no error")
			}
		}
		return c.Leave(nil)
	})
	if errs[0] != nil {
		t.Error(errs[0])
	}
}

func TestOldOrOtherLibraryIsRefused(t *testing.T) {
	if _, err := nccl.Open([]string{standIn(t, "VERSION=21201")}); err == nil || !strings.Contains(err.Error(), "is NCCL 2.12.1: want 2.14.0 or later") {
		t.Error(err)
	}
	if _, err := nccl.Open([]string{"/none/libnccl.so.2"}); err == nil || !strings.Contains(err.Error(), "/none/libnccl.so.2") {
		t.Error(err)
	}
	if _, err := nccl.Open(nil); err == nil || !strings.Contains(err.Error(), "NCCL is not installed") {
		t.Skipf("NCCL is installed here: %v", err)
	}
}
