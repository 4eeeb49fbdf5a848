package device

import (
	"math"
	"slices"
	"strings"
	"testing"
)

// TestTable checks relations between the figures of a card, to catch typos.
func TestTable(t *testing.T) {
	seen := map[string]string{}
	for _, c := range Cards() {
		t.Run(c.Name, func(t *testing.T) {
			for _, name := range append([]string{c.Name, c.Product}, c.Aliases...) {
				if key := cardKey(name); seen[key] != "" && seen[key] != c.Name {
					t.Errorf("%q also names %s", name, seen[key])
				} else {
					seen[key] = c.Name
				}
			}
			if c.Usable > c.Memory || c.Usable < c.Memory*95/100 {
				t.Errorf("usable %d of %d bytes", c.Usable, c.Memory)
			}
			if c.Budget() <= 0 {
				t.Error("no room for a program")
			}
			for _, p := range []Precision{FP32, TF32, FP16, BF16} {
				r := c.Rate(p)
				if len(r.BySize) > 0 && (r.Sustained == 0 || !slices.IsSortedFunc(r.BySize, func(a, b Sized) int { return a.N - b.N }) || r.BySize[len(r.BySize)-1].N >= largest) {
					t.Errorf("%s: speeds by size %v, want ascending sizes below that of the sustained one", p, r.BySize)
				}
				if r.Sustained > r.Peak {
					t.Errorf("%s: sustained %g above the peak %g", p, r.Sustained, r.Peak)
				}
				// A precision can be chosen exactly if the table has a rate for it.
				if _, _, err := ChoosePrecision(p, c); (err == nil) != (r.Peak > 0) {
					t.Errorf("%s: peak %g, but choosing it gives error %v", p, r.Peak, err)
				}
			}
			if (c.FP16.Sustained > 0 || c.SustainedBandwidth > 0) && c.Source == "" {
				t.Error("a measurement without a source")
			}
			// fp32: SMs x lanes x 2 x clock must give a clock that exists.
			lanes := 64.0
			if c.Capability.AtLeast(8, 6) {
				lanes = 128
			}
			if clock := c.FP32.Peak / (float64(c.SMs) * lanes * 2); clock < 1.1e9 || clock > 2.6e9 {
				t.Errorf("fp32 peak needs a clock of %.2f GHz", clock/1e9)
			}
		})
	}
}

func TestRatesOfT4(t *testing.T) {
	c, err := Lookup("t4")
	if err != nil {
		t.Fatal(err)
	}
	if f, measured := c.MatmulRate(FP16); f != 24e12 || !measured {
		t.Errorf("fp16 matmuls %g, measured %v; want the 24 TFLOP/s of the power limit", f, measured)
	}
	for work, want := range map[float64]float64{
		1e6: 17.6e12, 2 * 512 * 512 * 512: 17.6e12, 2 * 1024 * 1024 * 1024: 18.8e12, 2 * 2048 * 2048 * 2048: 20e12, 2 * 4096 * 4096 * 4096: 24e12, 1e15: 24e12,
	} {
		if f := c.FP16.Of(work, 24e12); math.Abs(f-want) > 1 {
			t.Errorf("a matmul of %g FLOPs runs at %g, want %g", work, f, want)
		}
	}
	if f := c.FP32.Of(1e6, 5e12); f != 5e12 {
		t.Errorf("fp32 without sizes runs at %g", f)
	}
	if n, measured := c.Context(); n != 135*mib || !measured {
		t.Errorf("a context of %d bytes, measured %v", n, measured)
	}
	if b, measured := c.Streaming(); b != 256e9 || !measured {
		t.Errorf("bandwidth %g, measured %v", b, measured)
	}
	h, err := Lookup("h200")
	if err != nil {
		t.Fatal(err)
	}
	if f, measured := h.MatmulRate(BF16); f != AssumedGEMMShare*989.4e12 || measured {
		t.Errorf("H200: bf16 matmuls %g, measured %v; want the assumed share", f, measured)
	}
	if n, measured := h.Context(); n != contextEstimate || measured {
		t.Errorf("H200: a context of %d bytes, measured %v", n, measured)
	}
	if b, measured := h.Streaming(); b != AssumedBandwidthShare*4800e9 || measured {
		t.Errorf("H200: bandwidth %g, measured %v; want the assumed share", b, measured)
	}
}

func TestLookup(t *testing.T) {
	for name, want := range map[string]string{
		"T4": "T4", "tesla t4": "T4", "NVIDIA T4": "T4", "Tesla-T4": "T4",
		"a100": "A100-40GB", "A100_80gb": "A100-80GB", "NVIDIA A100-SXM4-80GB": "A100-80GB", "NVIDIA A100 80GB PCIe": "A100-80GB",
		"H100": "H100-SXM", "h100 pcie": "H100-PCIe", "NVIDIA H100 80GB HBM3": "H100-SXM",
		"rtx3090": "RTX 3090", "GeForce RTX 4090": "RTX 4090", "v100": "V100-16GB", "Tesla P100-PCIE-16GB": "P100",
	} {
		if c, err := Lookup(name); err != nil || c.Name != want {
			t.Errorf("Lookup(%q) = %v, %v; want %s", name, c, err, want)
		}
	}
	if _, err := Lookup("L40"); err == nil || !strings.Contains(err.Error(), "did you mean L4") {
		t.Errorf("L40: %v", err)
	}
	if _, err := Lookup("Voodoo 2"); err == nil || !strings.Contains(err.Error(), "the table has P100") || strings.Contains(err.Error(), "did you mean") {
		t.Errorf("Voodoo 2: %v", err)
	}
}

func TestChoosePrecision(t *testing.T) {
	card := func(name string) Chip {
		c, err := Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	plain := &CPU{Model: "Old"}
	zen := &CPU{Model: "Zen", AVX512BF16: true}
	xeon := &CPU{Model: "Xeon", AMXBF16: true}
	graviton := &CPU{Model: "Graviton", ARMBF16: true}
	for _, c := range []struct {
		on        Chip
		ask, want Precision
		say       string // part of the reason or of the error
	}{
		{card("P100"), Auto, FP32, "no tensor cores"},
		{card("P100"), FP16, "", "tensor cores"},
		{card("V100"), Auto, FP16, "loss scaling"},
		{card("T4"), Auto, FP16, "7.5"},
		{card("T4"), "", FP16, "7.5"},
		{card("T4"), FP32, FP32, "as asked"},
		{card("T4"), FP16, FP16, "loss scaling"},
		{card("T4"), BF16, "", "T4 cannot train in bf16: bf16 needs compute capability 8.0 or newer, this card has 7.5"},
		{card("T4"), TF32, "", "use fp16"},
		{card("A10"), Auto, BF16, "multiplies bf16"},
		{card("A100"), TF32, TF32, "as asked; float32"},
		{card("H200"), FP16, FP16, "loss scaling"},
		{plain, Auto, FP32, "no bf16"},
		{plain, BF16, BF16, "emulated"},
		{plain, TF32, "", "NVIDIA"},
		{zen, Auto, BF16, "AVX512_BF16"},
		{zen, BF16, BF16, "as asked"},
		{zen, FP16, FP16, "emulated"},
		{xeon, Auto, BF16, "AMX"},
		{graviton, Auto, BF16, "FEAT_BF16"},
		{zen, "fp61", "", "did you mean fp16"},
	} {
		p, reason, err := ChoosePrecision(c.ask, c.on)
		said := reason
		if err != nil {
			said = err.Error()
		}
		if p != c.want || (err != nil) != (c.want == "") || !strings.Contains(said, c.say) {
			t.Errorf("%v, %q: %q, %q, %v; want %q with %q", c.on, c.ask, p, reason, err, c.want, c.say)
		}
	}
}

func TestParsePrecision(t *testing.T) {
	if p, err := ParsePrecision("BF16"); err != nil || p != BF16 {
		t.Errorf("BF16: %v, %v", p, err)
	}
	if _, err := ParsePrecision("half"); err == nil || !strings.Contains(err.Error(), "auto, fp32, tf32, bf16, fp16") {
		t.Errorf("half: %v", err)
	}
	if !FP16.LossScaling() || BF16.LossScaling() {
		t.Error("loss scaling is for fp16 alone")
	}
}
