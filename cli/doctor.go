package cli

import (
	"fmt"
	"strings"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/internal/size"
)

type doctorCmd struct {
}

// Run implements the verb.
func (d *doctorCmd) Run(a *app) error {
	h, nv := device.DetectHost(), device.DiscoverNVIDIA()
	precision, why, err := device.ChoosePrecision(device.Auto, &h.CPU)
	if err != nil {
		return err
	}
	if a.asJSON {
		return a.json(map[string]any{"host": h, "nvidia": nv, "precision": precision, "reason": why})
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
	a.printf("This machine\n")
	if err := a.table([][]string{
		{"  system", fmt.Sprintf("%s/%s, kernel %s, %s", h.OS, h.Arch, h.Kernel, h.Go)},
		{"  processor", fmt.Sprintf("%s, %d of %d processors allowed, %d cores", c.String(), c.Allowed, c.Logical, c.Cores)},
		{"  caches", fmt.Sprintf("L1 %s, L2 %s a core, L3 %s", size.Bytes(int64(c.L1D)), size.Bytes(int64(c.L2)), size.Bytes(int64(c.L3)))},
		{"  bf16 products", yes(c.AVX512BF16, "AVX512_BF16") + ", AMX " + yes(c.AMXBF16, "yes")},
		{"  CPU limit", quota},
		{"  memory", fmt.Sprintf("%s, %s available; limit of the control group: %s", size.Bytes(m.Total), size.Bytes(m.Available), limit)},
	}); err != nil {
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
			note += "; this process was not given its device file"
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
	a.printf("  this build computes on the CPU only\n")
	a.printf("\nWhat would be chosen\n")
	return a.table([][]string{
		{"  device", "cpu"},
		{"  kernels", fmt.Sprintf("%s (override: hardware.cpu_isa or SNUG_CPU_ISA)", c.ISA)},
		{"  threads", fmt.Sprintf("%d", c.Threads)},
		{"  precision", fmt.Sprintf("%s: %s", precision, why)},
	})
}
