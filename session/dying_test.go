package session

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/dist"
)

// dying is a rank that fails at one of its calls.
type dying struct {
	dist.Group
	left int
}

var errDead = errors.New("it died")

func (d *dying) die() error {
	if d.left--; d.left < 0 {
		return errDead
	}
	return nil
}

func (d *dying) AllToAll(send, recv [][]byte) error {
	if err := d.die(); err != nil {
		return err
	}
	return d.Group.AllToAll(send, recv)
}

func (d *dying) AllGather(parts [][]byte) error {
	if err := d.die(); err != nil {
		return err
	}
	return d.Group.AllGather(parts)
}

func (d *dying) Broadcast(root int, data []byte) error {
	if err := d.die(); err != nil {
		return err
	}
	return d.Group.Broadcast(root, data)
}

// Wherever a rank dies, the other ends with its error, and what was saved before resumes
// to the states of a run that nobody left.
func TestRankDiesAnywhere(t *testing.T) {
	if testing.Short() {
		t.Skip("trains many times")
	}
	for _, zero := range []string{"0", "1"} {
		t.Run("zero "+zero, func(t *testing.T) { diesAnywhere(t, zero) })
	}
}

func diesAnywhere(t *testing.T, zero string) {
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte(tinyConfigs(t)["refocused"]), 0o666); err != nil {
		t.Fatal(err)
	}
	options := func(out string) Options {
		return Options{Dir: filepath.Join(dir, out), Sources: config.Sources{File: file, NeedData: true, Overrides: []config.Override{
			{Key: "training.gradient_accumulation_steps", Text: "2"}, {Key: "training.max_steps", Text: "3"},
			{Key: "training.eval_steps", Text: "2"}, {Key: "training.save_steps", Text: "1"}, {Key: "hardware.threads", Text: "1"},
			{Key: "data.cache_dir", Text: filepath.Join(dir, "data")}, {Key: "training.zero", Text: zero},
		}}}
	}
	if err := together(t, 2, options("whole")); err != nil {
		t.Fatal(err)
	}
	want := states(t, filepath.Join(dir, "whole"))
	for calls, ended := 0, false; !ended; calls += 1 + calls/4 {
		groups := dist.InProcess(2)
		mortal := &dying{groups[1], calls}
		var first, second error
		var all sync.WaitGroup
		all.Go(func() {
			o := options("broken")
			o.Group, o.Resume = groups[0], true
			_, first = Train(t.Context(), o)
			_ = groups[0].Leave(first)
		})
		all.Go(func() {
			second = Follow(t.Context(), mortal, Local{}, nil)
			_ = groups[1].Leave(second)
		})
		all.Wait()
		var told *dist.EndedError
		switch ended = second == nil; {
		case ended && first != nil:
			t.Fatal(first)
		case !ended && (!errors.Is(second, errDead) || !errors.As(first, &told) || told.Rank != 1):
			t.Fatalf("after %d calls rank 1 ends with %v, rank 0 with %v", calls, second, first)
		}
	}
	if !same(states(t, filepath.Join(dir, "broken")), want) {
		t.Error("a run that a rank left again and again trains to other states")
	}
}
