package dist_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/snug-ml/snug/dist"
)

// mesh opens a group over TCP.
func mesh(t *testing.T, world int, change func(*dist.Options)) []dist.Group {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	groups, errs := make([]dist.Group, world), make([]error, world)
	var all sync.WaitGroup
	for r := range world {
		o := dist.Options{Rank: r, World: world, Address: l.Addr().String(), Token: "secret", Meet: 5 * time.Minute}
		if r == 0 {
			o.Listener = l
		}
		if change != nil {
			change(&o)
		}
		all.Go(func() { groups[r], errs[r] = dist.Open(context.Background(), o) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, g := range groups {
			_ = g.Leave(nil) // what failed was tested
		}
	})
	return groups
}

// ranks runs each rank's part and returns their errors.
func ranks(groups []dist.Group, part func(g dist.Group) error) []error {
	errs := make([]error, len(groups))
	var all sync.WaitGroup
	for r, g := range groups {
		all.Go(func() { errs[r] = part(g) })
	}
	all.Wait()
	return errs
}

func kinds(t *testing.T, world int, test func(t *testing.T, groups []dist.Group)) {
	t.Run(fmt.Sprint("in process/", world), func(t *testing.T) { test(t, dist.InProcess(world)) })
	t.Run(fmt.Sprint("tcp/", world), func(t *testing.T) { test(t, mesh(t, world, nil)) })
}

// text is what rank from sends to rank to: its length differs from pair to pair.
func text(from, to, n int) []byte {
	return bytes.Repeat([]byte(fmt.Sprintf("%d to %d;", from, to)), n*(from+2*to))
}

func TestExchanges(t *testing.T) {
	for world := 1; world <= 4; world++ {
		kinds(t, world, func(t *testing.T, groups []dist.Group) {
			errs := ranks(groups, func(g dist.Group) error {
				if g.World() != world {
					return fmt.Errorf("%d ranks", g.World())
				}
				for n := range 4 { // 0: empty parts
					send, recv, parts := make([][]byte, world), make([][]byte, world), make([][]byte, world)
					for r := range world {
						send[r], recv[r] = text(g.Rank(), r, n*1000), make([]byte, len(text(r, g.Rank(), n*1000)))
						parts[r] = make([]byte, len(text(r, 0, n)))
					}
					copy(parts[g.Rank()], text(g.Rank(), 0, n))
					if err := errors.Join(g.AllToAll(send, recv), g.AllGather(parts)); err != nil {
						return err
					}
					for r := range world {
						if !bytes.Equal(recv[r], text(r, g.Rank(), n*1000)) || !bytes.Equal(parts[r], text(r, 0, n)) {
							return fmt.Errorf("rank %d has something else from rank %d", g.Rank(), r)
						}
					}
					root := n % world
					var data []byte
					if g.Rank() == root {
						data = text(root, 7, n)
					}
					got, err := dist.BroadcastSized(g, root, data)
					if err != nil || !bytes.Equal(got, text(root, 7, n)) {
						return fmt.Errorf("broadcast: %q, %w", got, err)
					}
					all, err := dist.AllGatherSized(g, text(g.Rank(), 3, n))
					if err != nil {
						return err
					}
					for r := range world {
						if !bytes.Equal(all[r], text(r, 3, n)) {
							return fmt.Errorf("rank %d gathered %q from rank %d", g.Rank(), all[r], r)
						}
					}
				}
				return dist.Barrier(g)
			})
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestDisagreementIsAnError(t *testing.T) {
	kinds(t, 2, func(t *testing.T, groups []dist.Group) {
		errs := ranks(groups, func(g dist.Group) error {
			err := g.AllGather([][]byte{make([]byte, 4+4*g.Rank()), make([]byte, 4+4*g.Rank())})
			return errors.Join(err, g.Leave(err))
		})
		if errs[0] == nil || errs[1] == nil {
			t.Errorf("sizes differ: %v", errs)
		}
	})
	kinds(t, 2, func(t *testing.T, groups []dist.Group) {
		errs := ranks(groups, func(g dist.Group) error { // more than connections hold
			parts := func() [][]byte { return [][]byte{make([]byte, 32<<20+g.Rank()), make([]byte, 32<<20+g.Rank())} }
			err := g.AllToAll(parts(), parts())
			return errors.Join(err, g.Leave(err))
		})
		if errs[0] == nil || errs[1] == nil {
			t.Errorf("sizes of large messages differ: %v", errs)
		}
	})
	kinds(t, 2, func(t *testing.T, groups []dist.Group) {
		errs := ranks(groups, func(g dist.Group) (err error) {
			if g.Rank() == 0 {
				err = dist.Barrier(g)
			} else {
				err = g.Broadcast(1, make([]byte, 1))
				if err == nil { // it sent what rank 0 does not expect, and finds out with the next call
					err = dist.Barrier(g)
				}
			}
			return errors.Join(err, g.Leave(err))
		})
		if errs[0] == nil || errs[1] == nil {
			t.Errorf("kinds differ: %v", errs)
		}
	})
}

func TestFailureEndsAll(t *testing.T) {
	kinds(t, 3, func(t *testing.T, groups []dist.Group) {
		errs := ranks(groups, func(g dist.Group) error {
			if g.Rank() == 1 {
				return g.Leave(errors.New("the disk is full"))
			}
			return dist.Barrier(g)
		})
		for _, r := range []int{0, 2} {
			var e *dist.EndedError
			if !errors.As(errs[r], &e) || e.Rank != 1 || !strings.Contains(e.Text, "disk is full") {
				t.Errorf("rank %d: %v", r, errs[r])
			}
		}
	})
}

// A rank that fails while another of its goroutines waits in a call for ranks that do not come
// ends that call.
func TestLeavingEndsACallInHand(t *testing.T) {
	kinds(t, 2, func(t *testing.T, groups []dist.Group) {
		done := make(chan error)
		go func() { done <- groups[1].Broadcast(0, make([]byte, 1)) }()
		_ = groups[1].Leave(errors.New("it broke"))
		var ended *dist.EndedError
		if err := <-done; !errors.As(err, &ended) || ended.Rank != 1 {
			t.Errorf("the call in hand ends with %v", err)
		}
	})
}

func TestLeavingWellEndsNobody(t *testing.T) {
	kinds(t, 3, func(t *testing.T, groups []dist.Group) {
		errs := ranks(groups, func(g dist.Group) error {
			return errors.Join(dist.Barrier(g), g.Leave(nil), g.Leave(nil))
		})
		if err := errors.Join(errs...); err != nil {
			t.Error(err)
		}
	})
}

// dial greets rank 0 as another rank would, and returns its answer.
func dial(t *testing.T, address, greeting string) (net.Conn, string) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := fmt.Fprintln(c, greeting); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 4096)
	n, _ := c.Read(b) // nothing, if it was turned away
	return c, string(b[:n])
}

// One rank of two greets by hand and then is killed, or stopped.
func TestLostRankIsNamed(t *testing.T) {
	for _, how := range []string{"killed", "stopped"} {
		t.Run(how, func(t *testing.T) {
			if testing.Short() && how == "stopped" {
				t.Skip("takes seconds")
			}
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			failed := make(chan error)
			go func() {
				g, err := dist.Open(context.Background(), dist.Options{World: 2, Listener: l, Token: "t", Silence: 2 * time.Second})
				if err == nil {
					err = dist.Barrier(g)
					_ = g.Leave(err)
				}
				failed <- err
			}()
			life, told := dial(t, l.Addr().String(), `{"snug":2,"token":"t","for":"life","rank":1,"world":2,"address":"127.0.0.1:1"}`)
			if !strings.Contains(told, "addresses") {
				t.Fatalf("rank 0 says %q", told)
			}
			data, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = data.Close() }()
			if _, err := fmt.Fprintln(data, `{"snug":2,"token":"t","for":"data","rank":1,"world":2}`); err != nil {
				t.Fatal(err)
			}
			if how == "killed" {
				_ = life.Close()
			}
			var e *dist.LostError
			if err := <-failed; !errors.As(err, &e) || e.Rank != 1 || e.ExitCode() != 7 {
				t.Error(err)
			}
		})
	}
}

func TestStrangersAreTurnedAway(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	failed := make(chan error)
	go func() {
		_, err := dist.Open(ctx, dist.Options{World: 3, Listener: l, Token: "t"})
		failed <- err
	}()
	greeting := func(change func(map[string]any)) string {
		g := map[string]any{"snug": 2, "token": "t", "for": "life", "rank": 1, "world": 3}
		change(g)
		b, _ := json.Marshal(g)
		return string(b)
	}
	for want, g := range map[string]string{
		"":           greeting(func(g map[string]any) { g["token"] = "other" }),
		"version 9":  greeting(func(g map[string]any) { g["snug"] = 9 }),
		"4 ranks":    greeting(func(g map[string]any) { g["world"] = 4 }),
		"no rank 0":  greeting(func(g map[string]any) { g["rank"] = 0 }),
		"no rank -5": greeting(func(g map[string]any) { g["rank"] = -5 }),
	} {
		if _, got := dial(t, l.Addr().String(), g); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%s: %q", g, got)
		}
	}
	dial := func(rank int) {
		c, err := net.Dial("tcp", l.Addr().String())
		if err == nil {
			_, _ = fmt.Fprintln(c, greeting(func(g map[string]any) { g["rank"] = rank }))
		}
	}
	dial(2)
	cancel()
	if err := <-failed; err == nil || !strings.Contains(err.Error(), "did not come") {
		t.Error(err)
	}
}

func TestTwoOfOneRank(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_, _ = fmt.Fprintln(c, `{"snug":2,"token":"","for":"life","rank":2,"world":3}`)
	}
	if _, err := dist.Open(context.Background(), dist.Options{World: 3, Listener: l}); err == nil || !strings.Contains(err.Error(), "two processes say that they are rank 2") {
		t.Error(err)
	}
}

func TestOptions(t *testing.T) {
	for _, o := range []dist.Options{{World: 0}, {Rank: 2, World: 2}, {Rank: -1, World: 2}} {
		if _, err := dist.Open(context.Background(), o); err == nil {
			t.Errorf("%+v was taken", o)
		}
	}
}

// Ranks that were asked to do different things both end, and say what differs.
func TestAskedForDifferentThings(t *testing.T) {
	for _, x := range []struct {
		of0, of1 map[string]string
		want     string
	}{
		{map[string]string{"preset": "a"}, map[string]string{"preset": "b"}, "rank 1 was started with preset b, rank 0 with a: start all processes with the same arguments"},
		{map[string]string{"preset": "a"}, map[string]string{"preset": "a", "--x": "5"}, "rank 1 was started with --x 5, rank 0 without"},
		{map[string]string{"preset": "a", "--x": "5"}, map[string]string{"preset": "a", "--y": "1"}, "rank 0 was started with --x 5, rank 1 without; rank 1 was started with --y 1, rank 0 without"},
		{map[string]string{"preset": "a"}, nil, "rank 0 was started with preset a, rank 1 without"},
		{map[string]string{"preset": "a", "--x": "5"}, map[string]string{"--x": "5", "preset": "a"}, ""},
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		var errs [2]error
		var all sync.WaitGroup
		for r, asked := range []map[string]string{x.of0, x.of1} {
			o := dist.Options{Rank: r, World: 2, Address: l.Addr().String(), Asked: asked}
			if r == 0 {
				o.Listener = l
			}
			all.Go(func() {
				var g dist.Group
				if g, errs[r] = dist.Open(context.Background(), o); errs[r] == nil {
					errs[r] = errors.Join(dist.Barrier(g), g.Leave(nil))
				}
			})
		}
		all.Wait()
		for r, err := range errs {
			if x.want == "" && err != nil || x.want != "" && (err == nil || !strings.Contains(err.Error(), x.want)) {
				t.Errorf("rank %d ends with %v, want %q", r, err, x.want)
			}
		}
	}
}
