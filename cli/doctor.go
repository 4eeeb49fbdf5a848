package cli

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/dist"
	"github.com/snug-ml/snug/dist/mpi"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/monitor"
	"github.com/snug-ml/snug/session"
)

type doctorCmd struct {
	Exchange bool `help:"Show only what the processes of a run could exchange gradients over, and what hardware.exchange auto would choose."`
}

// Help implements kong.HelpProvider.
func (doctorCmd) Help() string {
	return `Cards are tried: a kernel is assembled and run, memory is copied both ways and timed, a
graph is captured and replayed, and NVIDIA's management library is read. What fails is
named with the call of the driver and what to do next.

Exit codes: 0 nothing is wrong, 1 runs would fail on a card (or on all of them: the driver is too
old), 2 wrong usage.`
}

// Run implements the command.
func (d *doctorCmd) Run(a *app) error {
	h, nv := device.DetectHost(), device.DiscoverNVIDIA()
	var notes []string
	note := func(text string) { notes = append(notes, text) }
	on, err := backend.Open(backend.Options{Device: "auto", Chosen: note, Note: note})
	if err != nil {
		return err
	}
	chip, chosen, kernels := device.Chip(&h.CPU), "cpu", fmt.Sprintf("%s (override: hardware.cpu_isa or SNUG_CPU_ISA)", strings.TrimPrefix(on.Arithmetic(), "cpu kernels "))
	card, free, err := backend.CardOf(on)
	if err != nil {
		return err
	}
	if card != nil {
		chip, chosen, kernels = card, fmt.Sprintf("%s, %s of its memory free", on.Name(), size.Bytes(free)), on.Arithmetic()
	}
	matmuls := backend.Matmuls(on)
	precision, why, err := device.ChoosePrecision(device.Auto, chip)
	if err != nil {
		return err
	}
	advice := monitor.LookAtMachine(a.ctx)
	launched, contradiction := dist.ReadEnvironment(os.Getenv)
	if contradiction != nil { // returned after the page is printed
		contradiction = session.UsageError{Err: contradiction}
	}
	launch, launcher := launched.Launch, "none"
	switch {
	case contradiction != nil:
		launcher = "unclear: " + contradiction.Error()
	case launch != nil:
		launcher = launch.String()
	}
	var tried []backend.Tried
	cards, cardsErr := backend.Cards()
	if card != nil && len(cards) == 1 {
		chosen += ": the only card"
	}
	if cardsErr == nil && !d.Exchange {
		tried, cardsErr = backend.Try()
	}
	processes := 0
	if launch != nil {
		processes = launch.LocalWorld
	}
	auto, onCards := session.AutoExchange(processes, len(cards)), "none"
	if l, err := session.FindNCCL(""); err == nil {
		onCards = l.String()
	} else {
		onCards += ": " + err.Error()
	}
	library := "none"
	if l, err := mpi.Find(""); err == nil {
		library = fmt.Sprintf("%v, with the interface of %s", l, l.ABI)
	} else {
		library += ": " + err.Error()
	}
	blas := backend.FindBLAS("", h.CPU.Threads)
	var code *backend.CodeCache
	if !errors.Is(cardsErr, backend.ErrNoDriver) {
		code = new(backend.FindCodeCache())
	}
	if a.asJSON && d.Exchange {
		return errors.Join(contradiction, a.json(map[string]any{"launcher": launcher, "launch": launchJSON(launched), "mpi": library, "nccl": onCards, "exchange": auto}))
	}
	if a.asJSON {
		return errors.Join(contradiction, failing(tried, cardsErr), a.json(map[string]any{"host": h, "nvidia": nv, "device": chosen, "notes": notes, "matmuls": matmuls, "precision": precision, "reason": why, "advice": advice, "launcher": launcher, "launch": launchJSON(launched), "mpi": library, "nccl": onCards, "exchange": auto, "code": code, "cards": tried, "blas": blas}))
	}
	over := append(launchRows(launcher, launched), []string{"  MPI", library}, []string{"  NCCL", onCards})
	if d.Exchange {
		a.printf("Between the processes of a run\n")
		return errors.Join(contradiction, a.table(append(over, []string{"  hardware.exchange auto", auto})))
	}
	c, m := &h.CPU, &h.Memory
	yes := func(b bool, s string) string {
		if b {
			return s
		}
		return "no"
	}
	quota := "none"
	if c.Quota > 0 {
		quota = fmt.Sprintf("%.1f processors", c.Quota)
	}
	limit := "none"
	if m.Limit > 0 {
		limit = size.Bytes(m.Limit).String()
	}
	bf16 := yes(c.AVX512BF16, "AVX512_BF16") + ", AMX " + yes(c.AMXBF16, "yes")
	if h.Arch == "arm64" {
		bf16 = yes(c.ARMBF16, "FEAT_BF16")
	}
	a.printf("This machine\n")
	if err := a.table(append([][]string{
		{"  system", fmt.Sprintf("%s/%s, kernel %s, %s", h.OS, h.Arch, h.Kernel, h.Go)},
		{"  processor", fmt.Sprintf("%s, %d of %s allowed, %s", c.String(), c.Allowed, size.Of(c.Logical, "processor"), size.Of(c.Cores, "core"))},
		{"  caches", fmt.Sprintf("L1 %s, L2 %s a core, L3 %s", size.Bytes(int64(c.L1D)), size.Bytes(int64(c.L2)), size.Bytes(int64(c.L3)))},
		{"  bf16 products", bf16},
		{"  BLAS", blas.String()},
		{"  CPU limit", quota},
		{"  memory", fmt.Sprintf("%s, %s available; limit of the control group: %s", size.Bytes(m.Total), size.Bytes(m.Available), limit)},
	}, over...)); err != nil {
		return err
	}
	a.printf("\nGPUs\n")
	switch {
	case len(nv.Cards) == 0 && nv.Driver == "":
		a.printf("  no NVIDIA driver is loaded\n")
	default:
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
	for _, n := range notes {
		a.printf("  %s\n", n)
	}
	for _, t := range tried {
		a.printf("  %s %s: compute capability %s, %d multiprocessors, %s\n", t.Device, t.Name, t.Capability, t.SMs, size.Bytes(t.Memory))
		if err := a.table(trialRows(&t)); err != nil {
			return err
		}
	}
	if cardsErr != nil && code != nil && !slices.ContainsFunc(notes, func(n string) bool { return strings.Contains(n, cardsErr.Error()) }) {
		a.printf("  %v\n", cardsErr)
	}
	if code != nil {
		a.printf("  assembled kernels: %v\n", code)
	}
	a.printf("\nWhat snug would choose\n")
	rows := [][]string{{"  device", chosen}, {"  kernels", kernels}}
	if matmuls != "" {
		rows = append(rows, []string{"  matmuls", matmuls})
	}
	rows = append(rows, []string{"  threads", fmt.Sprintf("%d", c.Threads)}, []string{"  precision", fmt.Sprintf("%s: %s", precision, why)})
	for _, x := range advice {
		rows = append(rows, []string{"  advice", x.Because + ": " + x.Do})
	}
	return errors.Join(contradiction, a.table(rows), failing(tried, cardsErr))
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

// failing returns an error that lists the cards on which runs would fail. With a driver that is too old, that
// is all of them.
func failing(tried []backend.Tried, cards error) error {
	var errs []error
	var old *backend.TooOld
	if errors.As(cards, &old) {
		errs = append(errs, fmt.Errorf("no run can use a card: %w", old))
	}
	for _, t := range tried {
		if names := t.Failed(); names != nil {
			errs = append(errs, fmt.Errorf("%s (%s): runs would fail there, at: %s", t.Device, t.Name, strings.Join(names, ", ")))
		}
	}
	return errors.Join(errs...)
}

// launchRows lists what launchers have told this process, and in which variables.
func launchRows(launcher string, e dist.Environment) [][]string {
	rows := [][]string{{"  launcher", launcher}}
	if e.Launch != nil && e.Launch.World > 1 {
		node, err := os.Hostname()
		if err != nil {
			node = "unknown: " + err.Error()
		}
		rows = append(rows, []string{"  this machine", node}, []string{"  processes meet", e.Launch.Meeting()})
	}
	for _, f := range e.Families {
		text := f.Role + ": " + strings.Join(f.Variables, ", ")
		if f.Place != "" && f.Role != dist.Counts {
			text = f.Place + ", " + text
		}
		rows = append(rows, []string{"  variables of " + f.By, text})
	}
	return rows
}

// launchJSON returns the same for programs.
func launchJSON(e dist.Environment) map[string]any {
	type family struct {
		Launcher  string   `json:"launcher"`
		Variables []string `json:"variables"`
		Place     string   `json:"place,omitempty"`
		Role      string   `json:"role"`
	}
	families := []family{}
	for _, f := range e.Families {
		families = append(families, family{f.By, f.Variables, f.Place, f.Role})
	}
	m := map[string]any{"families": families}
	if l := e.Launch; l != nil {
		m["by"], m["rank"], m["world"], m["local_rank"], m["local_world"], m["meeting"] = l.By, l.Rank, l.World, l.LocalRank, l.LocalWorld, l.Meeting()
	}
	return m
}
