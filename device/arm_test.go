package device

import (
	"strings"
	"testing"
)

// cpuinfo is the text of /proc/cpuinfo for cores of one implementer.
func cpuinfo(implementer string, parts ...string) string {
	var text strings.Builder
	for i, p := range parts {
		text.WriteString("processor\t: " + string(rune('0'+i)) + "\nBogoMIPS\t: 243.75\nFeatures\t: fp asimd evtstrm aes\nCPU implementer\t: " + implementer +
			"\nCPU architecture: 8\nCPU variant\t: 0x3\nCPU part\t: " + p + "\nCPU revision\t: 1\n\n")
	}
	return text.String()
}

// TestModelName checks the names of arm64 processors against what Linux reports about
// them.
func TestModelName(t *testing.T) {
	for _, c := range []struct{ text, vendor, want string }{
		{cpuinfo("0x41", "0xd0c", "0xd0c"), "", "Neoverse N1"},
		{cpuinfo("0x41", "0xd0c", "0xd0c"), "Amazon EC2", "AWS Graviton2 (Neoverse N1)"},
		{cpuinfo("0x41", "0xd40"), "Amazon EC2\n", "AWS Graviton3 (Neoverse V1)"},
		{cpuinfo("0x41", "0xd4f"), "Amazon EC2", "AWS Graviton4 (Neoverse V2)"},
		{cpuinfo("0x41", "0xd4f"), "Google", "Neoverse V2"},
		{cpuinfo("0x41", "0xd49"), "", "Neoverse N2"},
		{cpuinfo("0x6d", "0xd49"), "Microsoft Corporation", "Azure Cobalt 100"},
		{cpuinfo("0xc0", "0xac3"), "", "Ampere-1"},
		{cpuinfo("0x61", "0x022", "0x022", "0x023", "0x023"), "", "Apple M1"},
		{cpuinfo("0x41", "0xd05", "0xd05", "0xd05", "0xd0b"), "", "Cortex-A55 and Cortex-A76"},
		{cpuinfo("0x41", "0xd0b", "0xd05", "0xd05"), "", "Cortex-A55 and Cortex-A76"},
		{cpuinfo("0x41", "0xd08") + "Hardware\t: BCM2835\nModel\t\t: Raspberry Pi 4 Model B Rev 1.4\n", "", "Cortex-A72"},
		{cpuinfo("0x53", "0x002"), "", "arm64 core 0x53:0x002"},
		{"model name\t: Some Processor\n" + cpuinfo("0x41", "0xd08"), "", "Some Processor"},
		{"Model\t\t: A board\n", "", "A board"},
		{"CPU part\t: 0xd08\n", "", ""},
		{"", "", ""},
	} {
		root := fakeRoot(t, map[string]string{"proc/cpuinfo": c.text, "sys/class/dmi/id/sys_vendor": c.vendor})
		if got := modelName(root); got != c.want {
			t.Errorf("of vendor %q: %q, want %q", c.vendor, got, c.want)
		}
	}
}
