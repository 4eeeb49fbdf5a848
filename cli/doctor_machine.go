package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/monitor"
)

// examination is what doctor finds out about this machine, and what snug would choose on it.
type examination struct {
	exchange
	Host      device.Host        `json:"host"`
	NVIDIA    device.NVIDIA      `json:"nvidia"`
	Device    string             `json:"device"`
	Matmuls   string             `json:"matmuls"`
	Precision device.Precision   `json:"precision"`
	Reason    string             `json:"reason"` // why that precision
	BLAS      backend.BLAS       `json:"blas"`
	Advice    []device.Advice    `json:"advice"`
	Notes     []string           `json:"notes"` // from choosing the device
	Cards     []backend.Tried    `json:"cards"`
	Code      *backend.CodeCache `json:"code"` // nil: there is no driver

	kernels string
}

func lookAtMachine(ctx context.Context, over exchange) (*examination, error) {
	x := &examination{exchange: over, Host: device.DetectHost(), NVIDIA: device.DiscoverNVIDIA(), Notes: []string{}}
	note := func(text string) { x.Notes = append(x.Notes, text) }
	on, err := backend.Open(backend.Options{Device: "auto", Chosen: note, Note: note})
	if err != nil {
		return nil, err
	}
	card, free, err := backend.CardOf(on)
	if err != nil {
		return nil, err
	}
	chip := device.Chip(&x.Host.CPU)
	x.Device, x.kernels = "cpu", fmt.Sprintf("%s (override: hardware.cpu_isa or SNUG_CPU_ISA)", strings.TrimPrefix(on.Arithmetic(), "cpu kernels "))
	if card != nil {
		chip, x.Device, x.kernels = card, fmt.Sprintf("%s, %s of its memory free", on.Name(), size.Bytes(free)), on.Arithmetic()
	}
	if x.Precision, x.Reason, err = device.ChoosePrecision(device.Auto, chip); err != nil {
		return nil, err
	}
	x.Matmuls = backend.Matmuls(on)
	x.BLAS = backend.FindBLAS("", x.Host.CPU.Threads)
	x.Advice = monitor.LookAtMachine(ctx)
	if card != nil && x.cards == 1 {
		x.Device += ": the only card"
	}
	if x.cardsError == nil {
		x.Cards, x.cardsError = backend.Try()
	}
	if !errors.Is(x.cardsError, backend.ErrNoDriver) {
		x.Code = new(backend.FindCodeCache())
	}
	return x, nil
}

// failing returns an error that lists the cards on which runs would fail. With a driver that is too old, that
// is all of them.
func (x *examination) failing() error {
	var errs []error
	var old *backend.TooOld
	if errors.As(x.cardsError, &old) {
		errs = append(errs, fmt.Errorf("no run can use a card: %w", old))
	}
	for _, t := range x.Cards {
		if names := t.Failed(); names != nil {
			errs = append(errs, fmt.Errorf("%s (%s): runs would fail there, at: %s", t.Device, t.Name, strings.Join(names, ", ")))
		}
	}
	return errors.Join(errs...)
}

func (x *examination) print(a *app) error {
	a.printf("This machine\n")
	if err := a.table(append(machineRows(&x.Host, &x.BLAS), x.rows()...)); err != nil {
		return err
	}
	a.printf("\nGPUs\n")
	if err := x.printCards(a); err != nil {
		return err
	}
	a.printf("\nWhat snug would choose\n")
	rows := [][]string{{"  device", x.Device}, {"  kernels", x.kernels}}
	if x.Matmuls != "" {
		rows = append(rows, []string{"  matmuls", x.Matmuls})
	}
	rows = append(rows, []string{"  threads", fmt.Sprint(x.Host.CPU.Threads)}, []string{"  precision", fmt.Sprintf("%s: %s", x.Precision, x.Reason)})
	for _, advice := range x.Advice {
		rows = append(rows, []string{"  advice", advice.Because + ": " + advice.Do})
	}
	return a.table(rows)
}

func machineRows(h *device.Host, blas *backend.BLAS) [][]string {
	c, m := &h.CPU, &h.Memory
	yes := func(b bool, s string) string {
		if b {
			return s
		}
		return "no"
	}
	bf16 := yes(c.AVX512BF16, "AVX512_BF16") + ", AMX " + yes(c.AMXBF16, "yes")
	if h.Arch == "arm64" {
		bf16 = yes(c.ARMBF16, "FEAT_BF16")
	}
	quota := "none"
	if c.Quota > 0 {
		quota = fmt.Sprintf("%.1f processors", c.Quota)
	}
	limit := "none"
	if m.Limit > 0 {
		limit = size.Bytes(m.Limit).String()
	}
	return [][]string{
		{"  system", fmt.Sprintf("%s/%s, kernel %s, %s", h.OS, h.Arch, h.Kernel, h.Go)},
		{"  processor", fmt.Sprintf("%s, %d of %s allowed, %s", c.String(), c.Allowed, size.Of(c.Logical, "processor"), size.Of(c.Cores, "core"))},
		{"  caches", fmt.Sprintf("L1 %s, L2 %s a core, L3 %s", size.Bytes(int64(c.L1D)), size.Bytes(int64(c.L2)), size.Bytes(int64(c.L3)))},
		{"  bf16 products", bf16},
		{"  BLAS", blas.String()},
		{"  CPU limit", quota},
		{"  memory", fmt.Sprintf("%s, %s available; limit of the control group: %s", size.Bytes(m.Total), size.Bytes(m.Available), limit)},
	}
}

func (x *examination) printCards(a *app) error {
	nv := &x.NVIDIA
	if len(nv.Cards) == 0 && nv.Driver == "" {
		a.printf("  no NVIDIA driver is loaded\n")
	} else {
		a.printf("  NVIDIA driver %s\n", nv.Driver)
	}
	for _, g := range nv.Cards {
		note := "not in snug's table"
		if g.Card != nil {
			note = fmt.Sprintf("compute capability %v", g.Card.Capability)
		}
		if !g.Node {
			note += "; its device file is not available to this process"
		}
		a.printf("  %s at %s: %s\n", g.Model, g.Bus, note)
	}
	var found, absent []string
	for _, l := range nv.Libraries {
		if l.Path != "" {
			found = append(found, l.Path)
		} else {
			absent = append(absent, l.Name)
		}
	}
	if len(found) > 0 {
		a.printf("  libraries: %s\n", strings.Join(found, ", "))
	}
	if len(absent) > 0 {
		a.printf("  libraries not found: %s\n", strings.Join(absent, ", "))
	}
	for _, n := range x.Notes {
		a.printf("  %s\n", n)
	}
	for _, t := range x.Cards {
		a.printf("  %s %s: compute capability %s, %d multiprocessors, %s\n", t.Device, t.Name, t.Capability, t.SMs, size.Bytes(t.Memory))
		if err := a.table(trialRows(&t)); err != nil {
			return err
		}
	}
	if err := x.cardsError; err != nil && x.Code != nil && !slices.ContainsFunc(x.Notes, func(n string) bool { return strings.Contains(n, err.Error()) }) {
		a.printf("  %v\n", err)
	}
	if x.Code != nil {
		a.printf("  assembled kernels: %v\n", x.Code)
	}
	return nil
}

// trialRows returns the results of trying a card.
func trialRows(t *backend.Tried) (rows [][]string) {
	for _, x := range append(slices.Clone(t.Trials), t.NVML) {
		text := x.Found
		switch {
		case x.Problem != "":
			text = "FAILED: " + x.Problem
		case x.Skipped != "":
			text = "not tried: " + x.Skipped
		}
		for i, line := range strings.Split(text, "\n") { // output of the assembler
			what := "    " + x.What
			if i > 0 {
				what = ""
			}
			rows = append(rows, []string{what, line})
		}
	}
	return rows
}
