package backend

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/device/nvml"
	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/cuda/fakegpu"
)

// free is what NVML says of cards: bytes that are free, by their identity.
type free map[string]int64

func (f free) Sample(uuid string) (nvml.Sample, bool) {
	s := nvml.Unknown
	n, ok := f[uuid]
	if ok && n >= 0 {
		s.Total, s.Used = 40<<30, 40<<30-n
	}
	return s, ok
}

func (free) Processes(string) []nvml.Process { return nil }

func numbered(c driver.Card, uuid string) driver.Card {
	c.UUID = uuid
	return c
}

// Of several cards one is opened, and no other: the fastest that the plan fits on, of equally
// fast ones that with the most free memory, else the first. Why is said in one line.
func TestCardsAreChosen(t *testing.T) {
	old := numbered(fakegpu.T4, "old")
	old.Name, old.Major, old.Minor = "Tesla P100-PCIE-16GB", 6, 0
	t4, second, a10 := numbered(fakegpu.T4, "t4"), numbered(fakegpu.T4, "second"), numbered(fakegpu.A10, "a10")
	exclusive := func() func(string) driver.Code {
		n := 0
		return func(call string) driver.Code {
			if call == "cuDevicePrimaryCtxRetain" {
				if n++; n == 1 {
					return driver.DeviceUnavailable
				}
			}
			return 0
		}
	}
	const gib = 1 << 30
	for name, c := range map[string]struct {
		cards     []driver.Card
		free      nvml.Library
		need      int64 // of the plan; 0: there is none
		precision device.Precision
		fail      func(string) driver.Code
		want      string // identity
		why       string // "": nothing is said
		asked     []string
		opened    int
	}{
		"one":              {cards: []driver.Card{t4}, free: free{"t4": 14 * gib}, need: 20 * gib, want: "t4"},
		"fastest":          {cards: []driver.Card{t4, a10}, free: free{"t4": 14 * gib, "a10": 20 * gib}, need: gib, want: "a10", why: "cuda:1 (A10, 20 GiB free) computes: the fastest of 2 cards (hardware.device: cuda:N takes another)"},
		"fastest is full":  {cards: []driver.Card{t4, a10}, free: free{"t4": 14 * gib, "a10": 2 * gib}, need: 8 * gib, want: "t4", asked: []string{"A10", "T4"}, why: "cuda:0 (T4, 14 GiB free) computes: the fastest card that the plan fits on, which it does not on cuda:1 (A10, 2 GiB free) (hardware"},
		"fits anyway":      {cards: []driver.Card{t4, a10}, free: free{"t4": 14 * gib, "a10": 2 * gib}, need: gib, want: "a10", asked: []string{"A10"}, why: "the fastest of 2 cards"},
		"nothing fits":     {cards: []driver.Card{a10, t4}, free: free{"t4": 14 * gib, "a10": 2 * gib}, need: 30 * gib, want: "t4", asked: []string{"A10", "T4"}, why: "cuda:1 (T4, 14 GiB free) computes: the plan fits on no card, and this one has the most memory for it"},
		"no plan":          {cards: []driver.Card{t4, a10}, free: free{"t4": 14 * gib, "a10": 2 * gib}, want: "a10", why: "the fastest of 2 cards"},
		"most memory":      {cards: []driver.Card{t4, second}, free: free{"t4": 3 * gib, "second": 14 * gib}, need: gib, want: "second", why: "cuda:1 (T4, 14 GiB free) computes: of 2 equally fast cards the one with the most free memory"},
		"equal":            {cards: []driver.Card{t4, second}, free: free{"t4": 3 * gib, "second": 3 * gib}, need: gib, want: "t4", why: "cuda:0 (T4, 3 GiB free) computes: the first of 2 equally fast cards (hardware"},
		"no NVML":          {cards: []driver.Card{t4, second}, need: gib, want: "t4", why: "cuda:0 (T4) computes: the first of 2 equally fast cards; what memory is free was not looked at (there is no NVML)"},
		"NVML says little": {cards: []driver.Card{t4, second}, free: free{"t4": 3 * gib, "second": -1}, need: gib, want: "t4", asked: []string{"T4"}, why: "what memory is free was not looked at (NVIDIA's management library says nothing of cuda:1)"},
		"old card":         {cards: []driver.Card{old, t4}, free: free{"t4": gib}, want: "t4", why: "cuda:1 (T4, 1 GiB free) computes: cuda:0: Tesla P100-PCIE-16GB has compute capability 6.0"},
		"bf16":             {cards: []driver.Card{t4, a10}, free: free{"t4": 14 * gib, "a10": gib}, precision: device.BF16, want: "a10", why: "cuda:1 (A10, 1 GiB free) computes: cuda:0: T4 cannot train in bf16"},
		"nobody can bf16":  {cards: []driver.Card{t4}, free: free{"t4": 14 * gib}, precision: device.BF16, want: "t4"},
		"taken":            {cards: []driver.Card{t4, a10}, free: free{"t4": 14 * gib, "a10": 20 * gib}, fail: exclusive(), want: "t4", opened: 2, why: "cuda:0 (T4, 14 GiB free) computes: cuda:1: cuDevicePrimaryCtxRetain: another process has exclusive use of the card"},
	} {
		t.Run(name, func(t *testing.T) {
			opened := 0
			d := &fakegpu.Driver{Installed: c.cards, Fail: func(call string) driver.Code {
				if call == "cuDevicePrimaryCtxRetain" {
					opened++
				}
				if c.fail != nil {
					return c.fail(call)
				}
				return 0
			}}
			t.Cleanup(UseDriver(d))
			was := openMonitor
			t.Cleanup(func() { openMonitor = was })
			openMonitor = func() (nvml.Library, error) {
				if c.free == nil {
					return nil, errors.New("there is no NVML")
				}
				return c.free, nil
			}
			var asked, whys []string
			o := Options{Device: "cuda", Precision: c.precision, Chosen: func(why string) { whys = append(whys, why) }}
			if c.need > 0 {
				o.Fits = func(k Candidate) (bool, error) {
					asked = append(asked, k.Name)
					return k.room() >= c.need, nil
				}
			}
			b, err := Open(o)
			if err != nil {
				t.Fatal(err)
			}
			if id := CardID(b); id != c.want {
				t.Errorf("%s was taken, want %s", id, c.want)
			}
			if c.why == "" && len(whys) > 0 || c.why != "" && (len(whys) != 1 || !strings.Contains(whys[0], c.why) || strings.Contains(whys[0], "\n")) {
				t.Errorf("said %q, want one line with %q", whys, c.why)
			}
			if !slices.Equal(asked, c.asked) {
				t.Errorf("the plan was held against %v, want %v", asked, c.asked)
			}
			if want := max(c.opened, 1); opened != want {
				t.Errorf("%d cards were opened, want %d", opened, want)
			}
		})
	}
}

// A plan that cannot be made ends the search; cards that all refuse are named with their reasons.
func TestCardsThatAreNotChosen(t *testing.T) {
	cards := []driver.Card{numbered(fakegpu.T4, "t4"), numbered(fakegpu.A10, "a10")}
	t.Cleanup(UseMonitor(free{"t4": 14 << 30, "a10": 1 << 30}))
	t.Cleanup(UseDriver(&fakegpu.Driver{Installed: cards}))
	broken := errors.New("the plan is broken")
	if _, err := Open(Options{Device: "cuda", Fits: func(Candidate) (bool, error) { return false, broken }}); !errors.Is(err, broken) {
		t.Error(err)
	}
	t.Cleanup(UseDriver(&fakegpu.Driver{Installed: cards, Fail: func(call string) driver.Code {
		if call == "cuDevicePrimaryCtxRetain" {
			return driver.DeviceUnavailable
		}
		return 0
	}}))
	_, err := Open(Options{Device: "cuda"})
	for _, want := range []string{"no card can be used", "cuda:0: cuDevicePrimaryCtxRetain: another process", "cuda:1: cuDevicePrimaryCtxRetain: another process"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
