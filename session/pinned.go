package session

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/dist"
	"github.com/snug-ml/snug/internal/size"
)

// seat is where a rank computes. Ranks send theirs to each other.
type seat struct {
	Machine    string
	Processors []int // that the rank may use
	Logical    int   // processors of the machine
	Threads    int   // that it computes with
}

// seat returns the seat of this process.
func (s *Setup) seat() seat {
	x := seat{Machine: device.Machine(), Processors: s.Host.CPU.Processors, Logical: s.Host.CPU.Logical, Threads: s.Threads}
	if s.Card != nil {
		x.Threads = 1 // one thread feeds the card
	}
	return x
}

// pinned tells rank 0 which ranks are bound to too few processors. It does so once, in the first call that
// all ranks of a group make.
func (c *carrier) pinned(s *Setup) ([]string, error) {
	if c.met == nil || c.met.World() < 2 || c.seated {
		return nil, nil
	}
	b, err := json.Marshal(s.seat())
	if err != nil {
		return nil, err
	}
	all, err := dist.AllGatherSized(c.met, b)
	if err != nil {
		return nil, err
	}
	c.seated = true
	seats := make([]seat, len(all))
	for r, b := range all {
		if err := json.Unmarshal(b, &seats[r]); err != nil {
			return nil, fmt.Errorf("what rank %d says of its processors: %w", r, err)
		}
	}
	by := ""
	if l, err := dist.FindLaunch(os.Getenv); err == nil && l != nil {
		by = l.By
	}
	return bound(seats, by), nil
}

// unbind says how to keep each launcher from binding processes to processors.
var unbind = map[string]string{
	"Open MPI": "mpirun --bind-to none",
	"MPICH":    "mpiexec -bind-to none, or I_MPI_PIN=off for Intel MPI",
	"Slurm":    "srun --cpu-bind=none, or with a larger --cpus-per-task",
}

// bound reports the ranks that their launcher has bound to too few processors: to some that several ranks
// share, or to a single one, where computing and exchanging gradients take turns.
func bound(seats []seat, by string) (texts []string) {
	type place struct{ machine, processors string }
	ranks := map[place][]int{}
	var order []place
	for r, x := range seats {
		if len(x.Processors) == 0 || len(x.Processors) >= x.Logical { // unknown, or all of the machine
			continue
		}
		at := place{x.Machine, fmt.Sprint(x.Processors)}
		if ranks[at] == nil {
			order = append(order, at)
		}
		ranks[at] = append(ranks[at], r)
	}
	help := "nothing on this machine should limit the processes to these processors (taskset, a container's cpuset), or set hardware.threads"
	if text := unbind[by]; text != "" {
		help = "start with " + text
	}
	var single []int
	for _, at := range order {
		list, threads := ranks[at], 0
		x := seats[list[0]]
		for _, r := range list {
			threads += seats[r].Threads
		}
		switch n := len(x.Processors); {
		case len(list) > 1 && threads > n:
			texts = append(texts, fmt.Sprintf("%s may use the same %s of %d (%s) and compute with %s there, which take turns: %s",
				ranksText(list), processors(n), x.Logical, spans(x.Processors), size.Of(threads, "thread"), help))
		case n == 1:
			single = append(single, list...)
		}
	}
	if len(single) > 0 {
		slices.Sort(single)
		each := ""
		if len(single) > 1 {
			each = " each"
		}
		texts = append(texts, fmt.Sprintf("%s may use one processor%s of %d, where computing and exchanging gradients take turns: %s",
			ranksText(single), each, seats[single[0]].Logical, help))
	}
	return texts
}

func processors(n int) string {
	if n == 1 {
		return "processor"
	}
	return size.Of(n, "processor")
}

func ranksText(list []int) string {
	if len(list) == 1 {
		return fmt.Sprintf("rank %d", list[0])
	}
	return "ranks " + spans(list)
}

// spans prints ascending numbers with neighbors joined: 0-3, 8.
func spans(list []int) string {
	var texts []string
	for i := 0; i < len(list); {
		end := i
		for end+1 < len(list) && list[end+1] == list[end]+1 {
			end++
		}
		text := strconv.Itoa(list[i])
		if end > i {
			text += "-" + strconv.Itoa(list[end])
		}
		texts, i = append(texts, text), end+1
	}
	return strings.Join(texts, ", ")
}
