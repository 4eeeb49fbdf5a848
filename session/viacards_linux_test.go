//go:build (amd64 || arm64) && !nocuda

package session

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/dist"
	"github.com/snug-ml/snug/dist/disttest"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/cuda/fakegpu"
	"github.com/snug-ml/snug/internal/dynlib/dynlibtest"
	"github.com/snug-ml/snug/train"
)

// fakeCards installs the given number of cards with interpreted kernels, and returns the path of a library
// that stands in for NCCL.
func fakeCards(t *testing.T, n int) (library string) {
	t.Helper()
	d := &fakegpu.Driver{Mapped: true}
	for i := range n {
		card := fakegpu.T4
		card.UUID = fmt.Sprint("GPU-", i)
		d.Installed = append(d.Installed, card)
	}
	restore := backend.UseDriver(d)
	t.Cleanup(func() {
		restore()
		if err := d.Left(); err != nil {
			t.Error(err)
		}
	})
	return dynlibtest.Build(t, "libnccl.so.2.0", "../dist/nccl/testdata/nccl.c", "VERSION=22304", "SCALABLE")
}

// togetherOnCards trains with the given number of ranks, each on a card.
func togetherOnCards(t *testing.T, world int, o Options) []error {
	t.Helper()
	return disttest.Ranks(t, world, func(g dist.Watched) error {
		local := Local{Rank: g.Rank(), World: world}
		var err error
		if g.Rank() == 0 {
			o := o
			o.Group, o.Local = g, local
			_, err = Train(t.Context(), o)
		} else {
			err = Follow(t.Context(), g, local, nil)
		}
		if errors.Is(err, train.ErrStopped) {
			return nil
		}
		return err
	})
}

// onCards returns a function that makes options of runs on cards.
func onCards(t *testing.T, dir, system string) func(out string, settings ...string) Options {
	t.Helper()
	file := filepath.Join(dir, system+".yaml")
	if err := os.WriteFile(file, []byte(tinyConfigs(t)[system]), 0o666); err != nil {
		t.Fatal(err)
	}
	return func(out string, settings ...string) Options {
		o := Options{Dir: filepath.Join(dir, out), Sources: config.Sources{File: file, NeedData: true, Overrides: []config.Override{
			{Key: "training.gradient_accumulation_steps", Text: "4"}, {Key: "training.max_steps", Text: "2"}, {Key: "training.eval_steps", Text: "2"},
			{Key: "hardware.threads", Text: "1"}, {Key: "hardware.device", Text: "cuda"}, {Key: "data.cache_dir", Text: filepath.Join(dir, "data")},
		}}}
		for i := 0; i < len(settings); i += 2 {
			o.Sources.Overrides = Overridden(o.Sources.Overrides, []config.Override{{Key: settings[i], Text: settings[i+1]}})
		}
		return o
	}
}

// TestCardsShareUpdates: cards that exchange over NCCL train to the same bits as one that exchanges with
// itself in main memory, whether they share the optimizer or not.
func TestCardsShareUpdates(t *testing.T) {
	if testing.Short() {
		t.Skip("kernels are interpreted")
	}
	library := fakeCards(t, 4)
	for _, system := range []string{"refocused", "moderation"} {
		t.Run(system, func(t *testing.T) {
			options := onCards(t, t.TempDir(), system)
			train := func(world int, out string, settings ...string) map[string][]byte {
				t.Helper()
				var told []string
				o := options(out, settings...)
				o.OnEvent = func(e Event) {
					switch e := e.(type) {
					case Info:
						told = append(told, e.Text)
					case Planned:
						told = append(told, strings.Join(e.Software(), ", "))
					}
				}
				for r, err := range togetherOnCards(t, world, o) {
					if err != nil {
						t.Fatalf("rank %d of %d: %v", r, world, err)
					}
				}
				if over := fmt.Sprintf("%d processes exchange gradients from card to card over NCCL 2.23.4", world); len(settings) > 0 && !strings.Contains(strings.Join(told, "\n"), over) {
					t.Errorf("nobody says %q: %q", over, told)
				}
				if with := "no cuBLASLt, NCCL 2.23.4"; len(settings) > 0 && !strings.Contains(strings.Join(told, "\n"), with) {
					t.Errorf("the run is not announced with %q: %q", with, told)
				}
				return states(t, options(out).Dir)
			}
			want := train(1, "1")
			if !same(train(2, "2", "hardware.exchange", "nccl:"+library, "training.zero", "1"), want) {
				t.Error("2 ranks that share the optimizer train to other states")
			}
			if !same(train(4, "4", "hardware.exchange", "nccl:"+library), want) {
				t.Error("4 ranks train to other states")
			}
		})
	}
}

// TestAutoExchange: by default, a run exchanges over NCCL if every rank has a card and the library is found,
// and says why it does or does not.
func TestAutoExchange(t *testing.T) {
	if testing.Short() {
		t.Skip("kernels are interpreted")
	}
	library := fakeCards(t, 2)
	options := onCards(t, t.TempDir(), "refocused")
	told := func(out string) string {
		t.Helper()
		o, text := options(out, "hardware.exchange", "auto", "training.max_steps", "1"), ""
		o.OnEvent = func(e Event) {
			if i, ok := e.(Info); ok && strings.HasPrefix(i.Text, "hardware.exchange auto: ") {
				text += i.Text
			}
		}
		for r, err := range togetherOnCards(t, 2, o) {
			if err != nil {
				t.Fatalf("rank %d: %v", r, err)
			}
		}
		return text
	}
	if _, err := FindNCCL(""); err != nil {
		if got, want := told("without"), "TCP, through main memory: rank 0: NCCL is not installed"; !strings.Contains(got, want) {
			t.Errorf("without the library: %q, want %q", got, want)
		}
	}
	t.Setenv("LD_LIBRARY_PATH", filepath.Dir(library))
	if got, want := told("with"), "NCCL, for every process has a card of its own"; !strings.Contains(got, want) {
		t.Errorf("with the library: %q, want %q", got, want)
	}
	for want, ranks := range map[string][]onCard{
		"rank 1 computes on the processor":          {{Card: "a", Library: "2"}, {Library: "2"}},
		"ranks 0 and 1 compute on the same card, a": {{Card: "a", Library: "2"}, {Card: "a", Library: "2"}},
		"rank 0 has NCCL 2, rank 1 3":               {{Card: "a", Library: "2"}, {Card: "b", Library: "3"}},
		"rank 1: it is not there":                   {{Card: "a", Library: "2"}, {Card: "b", Error: "it is not there"}},
	} {
		if err := disconnected(ranks); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", ranks, err, want)
		}
	}
}

// TestRefusedExchange: what cannot work is rejected before anything is created.
func TestRefusedExchange(t *testing.T) {
	options := onCards(t, t.TempDir(), "refocused")
	for name, c := range map[string]struct {
		settings []string
		want     string
	}{
		"processor":  {[]string{"hardware.device", "cpu", "hardware.exchange", "nccl"}, "the processor computes"},
		"no library": {[]string{"hardware.exchange", "nccl:/none/libnccl.so.2"}, "/none/libnccl.so.2"},
	} {
		t.Run(name, func(t *testing.T) {
			fakeCards(t, 1)
			o := options("refused", c.settings...)
			o.Group = dist.InProcess(1)[0]
			if _, err := Train(t.Context(), o); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if _, err := os.Stat(o.Dir); err == nil {
				t.Error("the run's folder was made")
			}
		})
	}
}
