package device

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// An armCore identifies a core of arm64 by MIDR_EL1: its implementer, and which of the
// implementer's cores it is.
type armCore struct{ implementer, part int }

// Implementers that have names here.
const (
	arm       = 0x41
	cavium    = 0x43
	fujitsu   = 0x46
	hisilicon = 0x48
	nvidia    = 0x4e
	phytium   = 0x70
	qualcomm  = 0x51
	apple     = 0x61
	microsoft = 0x6d
	ampere    = 0xc0
)

// armCores are the names of cores, by the numbers assigned by their makers and Linux. For
// Apple they name the processor, whose fast and slow cores have different numbers.
var armCores = map[armCore]string{
	{arm, 0xd03}: "Cortex-A53", {arm, 0xd04}: "Cortex-A35", {arm, 0xd05}: "Cortex-A55", {arm, 0xd07}: "Cortex-A57",
	{arm, 0xd08}: "Cortex-A72", {arm, 0xd09}: "Cortex-A73", {arm, 0xd0a}: "Cortex-A75", {arm, 0xd0b}: "Cortex-A76",
	{arm, 0xd0d}: "Cortex-A77", {arm, 0xd41}: "Cortex-A78", {arm, 0xd42}: "Cortex-A78AE", {arm, 0xd4b}: "Cortex-A78C",
	{arm, 0xd44}: "Cortex-X1", {arm, 0xd4c}: "Cortex-X1C", {arm, 0xd46}: "Cortex-A510", {arm, 0xd47}: "Cortex-A710",
	{arm, 0xd48}: "Cortex-X2", {arm, 0xd4d}: "Cortex-A715", {arm, 0xd4e}: "Cortex-X3", {arm, 0xd80}: "Cortex-A520",
	{arm, 0xd81}: "Cortex-A720", {arm, 0xd82}: "Cortex-X4", {arm, 0xd85}: "Cortex-X925", {arm, 0xd87}: "Cortex-A725",
	{arm, 0xd0c}: "Neoverse N1", {arm, 0xd49}: "Neoverse N2", {arm, 0xd8e}: "Neoverse N3",
	{arm, 0xd40}: "Neoverse V1", {arm, 0xd4f}: "Neoverse V2", {arm, 0xd84}: "Neoverse V3", {arm, 0xd83}: "Neoverse V3AE",
	{arm, 0xd4a}: "Neoverse E1",

	{cavium, 0x0a1}: "ThunderX", {cavium, 0x0af}: "ThunderX2",
	{fujitsu, 0x001}: "A64FX", {fujitsu, 0x003}: "MONAKA",
	{hisilicon, 0xd01}: "TaiShan v110", {hisilicon, 0xd02}: "TaiShan v120",
	{nvidia, 0x003}: "NVIDIA Denver 2", {nvidia, 0x004}: "NVIDIA Carmel", {nvidia, 0x010}: "NVIDIA Olympus",
	{phytium, 0x662}: "Phytium FTC662", {phytium, 0x663}: "Phytium FTC663",
	{qualcomm, 0xc00}: "Qualcomm Falkor", {qualcomm, 0x001}: "Qualcomm Oryon",
	{microsoft, 0xd49}: "Azure Cobalt 100",
	{ampere, 0xac3}:    "Ampere-1", {ampere, 0xac4}: "Ampere-1a", {ampere, 0xac5}: "Ampere-1b",

	{apple, 0x022}: "Apple M1", {apple, 0x023}: "Apple M1",
	{apple, 0x024}: "Apple M1 Pro", {apple, 0x025}: "Apple M1 Pro",
	{apple, 0x028}: "Apple M1 Max", {apple, 0x029}: "Apple M1 Max",
	{apple, 0x032}: "Apple M2", {apple, 0x033}: "Apple M2",
	{apple, 0x034}: "Apple M2 Pro", {apple, 0x035}: "Apple M2 Pro",
	{apple, 0x038}: "Apple M2 Max", {apple, 0x039}: "Apple M2 Max",
}

// gravitons are Amazon's processors, by their cores.
var gravitons = map[armCore]string{
	{arm, 0xd08}: "AWS Graviton", {arm, 0xd0c}: "AWS Graviton2", {arm, 0xd40}: "AWS Graviton3", {arm, 0xd4f}: "AWS Graviton4",
}

// armName names the kinds of cores in the text of /proc/cpuinfo on a machine whose
// firmware names the vendor, the most frequent first; "" if the text has none.
func armName(cpuinfo, vendor string) string {
	var names []string
	count := map[string]int{}
	implementer := -1
	for line := range strings.Lines(cpuinfo) {
		key, value, _ := strings.Cut(line, ":")
		n, err := strconv.ParseInt(strings.TrimSpace(value), 0, 32)
		switch key = strings.TrimSpace(key); {
		case err != nil:
		case key == "CPU implementer":
			implementer = int(n)
		case key == "CPU part" && implementer >= 0:
			name := armCore{implementer, int(n)}.name(vendor)
			if count[name]++; count[name] == 1 {
				names = append(names, name)
			}
		}
	}
	slices.SortStableFunc(names, func(a, b string) int { return count[b] - count[a] })
	return strings.Join(names, " and ")
}

// name returns the common name of the core, or its numbers if it has none here.
func (c armCore) name(vendor string) string {
	name, ok := armCores[c]
	if !ok {
		return fmt.Sprintf("arm64 core %#02x:%#03x", c.implementer, c.part)
	}
	if g, ok := gravitons[c]; ok && vendor == "Amazon EC2" {
		return g + " (" + name + ")"
	}
	return name
}
