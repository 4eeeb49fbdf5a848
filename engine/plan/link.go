package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/snug-ml/snug/device"
)

// Link is a connection that bytes cross between processes: a latency and a rate (the alpha-beta model of
// communication).
type Link struct {
	Name string `json:"name"`
	// Bandwidth is the rate in bytes per second, in both directions at once, from a machine to the others or
	// from a card to its neighbor.
	Bandwidth float64  `json:"bytes_per_second"`
	Kind      LinkKind `json:"kind"`
}

// LinkKind is the technology of a link, which decides the latency of a hop.
type LinkKind string

// The kinds of links.
const (
	Network LinkKind = "network"
	PCIe    LinkKind = "pcie"
	NVLink  LinkKind = "nvlink"
)

func (l Link) String() string {
	if l.Kind == Network && strings.HasSuffix(l.Name, "b") {
		return l.Name + "/s"
	}
	return fmt.Sprintf("%s (%s)", l.Name, ByteRate(l.Bandwidth))
}

// Links inside a machine, by generation, which follows from the card's architecture. Bandwidths are those
// that NCCL assumes (src/graph/topo.h, 2.30): PCI_BW for third-generation PCIe with 16 lanes, doubled for
// each later generation; SM70_, SM80_ and SM90_NVLINK_BW for each of a card's 6, 12 and 18 links.
var (
	pcie    = []Link{{"pcie3", 12e9, PCIe}, {"pcie4", 24e9, PCIe}, {"pcie5", 48e9, PCIe}}
	nvlinks = []Link{{"nvlink2", 6 * 20e9, NVLink}, {"nvlink3", 12 * 20e9, NVLink}, {"nvlink4", 18 * 20.6e9, NVLink}}
	links   = slices.Concat(pcie, nvlinks)
)

// networks lists common links between machines, in ascending order.
var networks = []string{"100Mb", "1Gb", "10Gb", "25Gb", "50Gb", "100Gb", "200Gb", "400Gb"}

// rateUnits are units in bytes per second: b is a bit, B a byte.
var rateUnits = []struct {
	suffix string
	bytes  float64
}{{"Mb", 1e6 / 8}, {"Gb", 1e9 / 8}, {"Tb", 1e12 / 8}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}}

// mostRate is more than any link between two machines or cards reaches, in bytes per second.
const mostRate = 1e14

// ParseLink returns a link by its name (pcie3, nvlink4), or a link between machines by its rate: 25Gb is 25
// gigabits per second, 3GB 3 gigabytes per second.
func ParseLink(text string) (Link, error) {
	if i := slices.IndexFunc(links, func(l Link) bool { return l.Name == strings.ToLower(text) }); i >= 0 {
		return links[i], nil
	}
	bare := text
	for _, end := range []string{"/s", "ps", "it"} { // 25Gbit/s, 25Gbps
		bare = strings.TrimSuffix(bare, end)
	}
	for _, u := range rateUnits {
		number, ok := strings.CutSuffix(bare, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || !(n > 0) || n*u.bytes > mostRate {
			return Link{}, fmt.Errorf("link %q: want a rate above 0 and up to %s before %s", text, ByteRate(mostRate), u.suffix)
		}
		return Link{Name: strconv.FormatFloat(n, 'g', -1, 64) + u.suffix, Bandwidth: n * u.bytes, Kind: Network}, nil
	}
	var names []string
	for _, l := range links {
		names = append(names, l.Name)
	}
	return Link{}, fmt.Errorf("link %q: want one of %s, or a rate such as %s (b: bits, B: bytes a second)", text, join(names), join(networks[2:5]))
}

// generation returns the generation of the links of a card's architecture.
func generation(c *device.Card) int {
	switch {
	case c.Capability.AtLeast(9, 0):
		return 2
	case c.Capability.AtLeast(8, 0):
		return 1
	}
	return 0
}

// HostLink returns the link between a card and the main memory of its machine: PCIe of the generation that
// its architecture came with.
func HostLink(c *device.Card) Link { return pcie[generation(c)] }

// nvlinked lists the cards whose usual form has NVLink.
var nvlinked = []string{"V100-16GB", "V100-32GB", "A100-40GB", "A100-80GB", "H100-SXM", "H200"}

// CardLink returns the default link between the cards of a machine: NVLink if their usual form has it,
// otherwise PCIe.
func CardLink(c *device.Card) Link {
	if slices.Contains(nvlinked, c.Name) {
		return nvlinks[generation(c)]
	}
	return HostLink(c)
}

// faster returns the next faster of the common links between machines, nil if there is none.
func (l Link) faster() *Link {
	for _, name := range networks {
		if n, err := ParseLink(name); err == nil && n.Bandwidth > 1.2*l.Bandwidth {
			return &n
		}
	}
	return nil
}
