package session

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/dist"
)

// dying is a rank that fails in one of its calls.
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

// TestRankDiesAnywhere: wherever a rank dies, be it the first or another, the other one ends with its error.
// What was saved before resumes to the states of an undisturbed run.
func TestRankDiesAnywhere(t *testing.T) {
	if testing.Short() {
		t.Skip("trains many times")
	}
	for _, o := range []config.Override{{Key: "training.zero", Text: "0"}, {Key: "training.zero", Text: "1"}, {Key: "training.diloco.inner_steps", Text: "2"}} {
		for rank := range 2 {
			t.Run(fmt.Sprint(o.Key, " ", o.Text, ", rank ", rank), func(t *testing.T) {
				t.Parallel()
				diesAnywhere(t, o, rank)
			})
		}
	}
}

func diesAnywhere(t *testing.T, with config.Override, rank int) {
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte(tinyConfigs(t)["refocused"]), 0o666); err != nil {
		t.Fatal(err)
	}
	options := func(out string) Options {
		return Options{Dir: filepath.Join(dir, out), Sources: config.Sources{File: file, NeedData: true, Overrides: []config.Override{
			{Key: "training.gradient_accumulation_steps", Text: "2"}, {Key: "training.max_steps", Text: "5"},
			{Key: "training.eval_steps", Text: "4"}, {Key: "training.save_steps", Text: "2"}, {Key: "hardware.threads", Text: "1"},
			{Key: "data.cache_dir", Text: filepath.Join(dir, "data")}, with,
		}}}
	}
	if err := together(t, 2, options("whole")); err != nil {
		t.Fatal(err)
	}
	want := states(t, filepath.Join(dir, "whole"))
	for calls, ended := 0, false; !ended; calls += 1 + calls/4 {
		groups := dist.InProcess(2)
		groups[rank] = &dying{groups[rank], calls}
		var errs [2]error
		var all sync.WaitGroup
		all.Go(func() {
			o := options("broken")
			o.Group, o.Resume = groups[0], true
			_, errs[0] = Train(t.Context(), o)
			_ = groups[0].Leave(errs[0])
		})
		all.Go(func() {
			errs[1] = Follow(t.Context(), groups[1], Local{}, nil)
			_ = groups[1].Leave(errs[1])
		})
		all.Wait()
		own, other := errs[rank], errs[1-rank]
		var told *dist.EndedError
		switch ended = own == nil; {
		case ended && other != nil:
			t.Fatal(other)
		case !ended && (!errors.Is(own, errDead) || !errors.As(other, &told) || told.Rank != rank):
			t.Fatalf("after %d calls rank %d ends with %v, the other with %v", calls, rank, own, other)
		}
	}
	if !same(states(t, filepath.Join(dir, "broken")), want) {
		t.Error("a run that a rank left again and again trains to other states")
	}
}
