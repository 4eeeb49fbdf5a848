package session

import (
	"fmt"
	"slices"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/dist/nccl"
	"github.com/snug-ml/snug/internal/size"
)

// FindNCCL loads NVIDIA's NCCL from path, or an installed one if path is empty.
func FindNCCL(path string) (*nccl.Library, error) {
	if path != "" {
		return nccl.OpenFile(path)
	}
	all := device.DiscoverNVIDIA().Libraries
	i := slices.IndexFunc(all, func(l device.Library) bool { return l.Name == "libnccl.so" })
	return nccl.Open(all[i].Seen)
}

// AutoExchange says what hardware.exchange auto would choose for the given numbers of processes and cards on
// one machine, and why. 0 processes means one for each card.
func AutoExchange(processes, cards int) string {
	library, err := FindNCCL("")
	switch {
	case cards == 0:
		return "TCP, through main memory: the processor computes"
	case err != nil:
		return "TCP, through main memory: " + err.Error()
	case processes > cards:
		return fmt.Sprintf("TCP, through main memory: %s for %s", size.Of(cards, "card"), size.Of(processes, "process"))
	case cards == 1 && processes == 0:
		return fmt.Sprintf("nothing on this machine alone, which has one card; %v with other machines", library)
	}
	return fmt.Sprintf("%v, for up to %s on this machine, each with a card of its own", library, size.Of(cards, "process"))
}
