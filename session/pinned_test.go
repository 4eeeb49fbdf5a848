package session

import (
	"slices"
	"strings"
	"testing"
)

func TestBoundRanks(t *testing.T) {
	const a, b = "a", "b"
	all := []int{0, 1, 2, 3, 4, 5, 6, 7}
	on := func(machine string, threads int, processors ...int) seat {
		return seat{machine, processors, 8, threads}
	}
	for name, c := range map[string]struct {
		seats []seat
		by    string
		want  []string // parts of each text
	}{
		"free":                     {[]seat{on(a, 8, all...), on(a, 8, all...)}, "Open MPI", nil},
		"halves":                   {[]seat{on(a, 4, 0, 1, 2, 3), on(a, 4, 4, 5, 6, 7)}, "Open MPI", nil},
		"unknown":                  {[]seat{{a, nil, 8, 4}, {a, nil, 8, 4}}, "Open MPI", nil},
		"one processor there is":   {[]seat{{a, []int{0}, 1, 1}, {a, []int{0}, 1, 1}}, "Open MPI", nil},
		"one each":                 {[]seat{on(a, 1, 0), on(a, 1, 1)}, "Open MPI", []string{"ranks 0-1 may use one processor each of 8, where computing and exchanging gradients take turns: start with mpirun --bind-to none"}},
		"one each on two":          {[]seat{on(a, 1, 0), on(b, 1, 0)}, "Slurm", []string{"ranks 0-1 may use one processor each of 8, where computing and exchanging gradients take turns: start with srun --cpu-bind=none"}},
		"the same":                 {[]seat{on(a, 1, 5), on(a, 1, 5), on(a, 1, 5)}, "MPICH", []string{"ranks 0-2 may use the same processor of 8 (5) and compute with 3 threads there, which take turns: start with mpiexec -bind-to none"}},
		"the same two":             {[]seat{on(a, 2, 0, 1), on(b, 8, all...), on(a, 2, 0, 1)}, "", []string{"ranks 0, 2 may use the same 2 processors of 8 (0-1) and compute with 4 threads there, which take turns: nothing on this machine should limit"}},
		"the same, shared out":     {[]seat{on(a, 1, 0, 1), on(a, 1, 0, 1)}, "", nil},
		"one of them and the rest": {[]seat{on(a, 1, 3), on(a, 7, 0, 1, 2, 4, 5, 6, 7)}, "torchrun", []string{"rank 0 may use one processor of 8"}},
	} {
		got := bound(c.seats, c.by)
		if !slices.EqualFunc(got, c.want, strings.HasPrefix) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
