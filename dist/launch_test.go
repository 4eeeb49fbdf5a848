package dist_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/snug-ml/snug/dist"
)

func env(pairs string) func(string) string {
	m := map[string]string{}
	for _, p := range strings.Fields(pairs) {
		name, value, _ := strings.Cut(p, "=")
		m[name] = value
	}
	return func(name string) string { return m[name] }
}

func TestFindLaunch(t *testing.T) {
	const (
		open2  = "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=n "
		open1  = "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1 PMIX_NAMESPACE=n "
		torch  = "RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 GROUP_WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=5 TORCHELASTIC_USE_AGENT_STORE=True TORCHELASTIC_RUN_ID=j "
		step   = "SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_STEP_NODELIST=n[1-2] "
		oneOf2 = step + "SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID=0 SLURM_STEP_TASKS_PER_NODE=1(x2) SLURM_NODEID=1 "
		snug2  = "SNUG_RANK=1 SNUG_WORLD_SIZE=2 SNUG_LOCAL_RANK=1 SNUG_LOCAL_WORLD_SIZE=2 SNUG_ADDRESS=h:1 SNUG_TOKEN=x "
	)
	for _, x := range []struct{ env, want string }{
		{"", "<nil>"},
		{"SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_JOB_ID=7", "<nil>"}, // a batch script
		{snug2, "snug 1/2 1/2 h:1 false x"},
		{torch, "torchrun 3/4 1/2 h:5 true j/5"},
		{"RANK=3 WORLD_SIZE=4 MASTER_ADDR=h MASTER_PORT=5", "a script 3/4 3/4 h:5 false 5"},
		{open2, "Open MPI 1/2 1/2  false n"},
		{"PMI_RANK=0 PMI_SIZE=2", "MPICH 0/2 0/2  false "},
		{"OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=4 PMIX_NAMESPACE=n PMIX_RANK=2", "Open MPI 2/4 1/4  false n"}, // Open MPI 5 counts so
		{"PMI_RANK=0 PMI_SIZE=4 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2", "error: set MASTER_ADDR to the machine of rank 0"},

		// Slurm, also with different numbers of tasks on its machines.
		{step + "SLURM_PROCID=5 SLURM_STEP_NUM_TASKS=6 SLURM_LOCALID=1 SLURM_STEP_TASKS_PER_NODE=2(x3) SLURM_STEP_NODELIST=n[07-09]", "Slurm 5/6 1/2 n07:"},
		{oneOf2 + "SLURM_STEP_NODELIST=a,b", "Slurm 1/2 0/1 a:"},
		{step + "SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=3 SLURM_LOCALID=1 SLURM_STEP_TASKS_PER_NODE=2,1 SLURM_NODEID=0", "Slurm 1/3 1/2 n1:"},
		{step + "SLURM_PROCID=2 SLURM_STEP_NUM_TASKS=3 SLURM_LOCALID=0 SLURM_STEP_TASKS_PER_NODE=2,1 SLURM_NODEID=1", "Slurm 2/3 0/1 n1:"},
		{step + "SLURM_PROCID=3 SLURM_STEP_NUM_TASKS=4 SLURM_LOCALID=1 SLURM_STEP_TASKS_PER_NODE=1(x2),2 SLURM_NODEID=2", "Slurm 3/4 1/2 n1:"},
		{step + "SLURM_PROCID=2 SLURM_STEP_NUM_TASKS=3 SLURM_LOCALID=1 SLURM_STEP_TASKS_PER_NODE=1,2 SLURM_NODEID=0", "error: contradict"}, // on the other machine
		{step + "SLURM_PROCID=2 SLURM_STEP_NUM_TASKS=3 SLURM_LOCALID=0 SLURM_STEP_TASKS_PER_NODE=2,1 SLURM_NODEID=2", "error: SLURM_NODEID is 2, of 2 machines"},
		{step + "SLURM_PROCID=2 SLURM_STEP_NUM_TASKS=3 SLURM_LOCALID=0 SLURM_STEP_TASKS_PER_NODE=2,1", "error: SLURM_NODEID is \"\""},
		{step + "SLURM_PROCID=2 SLURM_STEP_NUM_TASKS=3 SLURM_LOCALID=0 SLURM_STEP_TASKS_PER_NODE=2,2 SLURM_NODEID=1", "error: how many of the 3 processes each machine has"},
		{step + "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=3 SLURM_LOCALID=0 SLURM_STEP_TASKS_PER_NODE=2(x,1 SLURM_NODEID=0", "error: how many of the 3 processes each machine has"},
		{step + "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=3 SLURM_LOCALID=0 SLURM_STEP_TASKS_PER_NODE=1(x999999999999) SLURM_NODEID=0", "error: how many of the 3 processes each machine has"},

		// Contradictory variables.
		{"RANK=2 WORLD_SIZE=2", "error: contradict"},
		{"RANK=0 WORLD_SIZE=2 LOCAL_RANK=2 LOCAL_WORLD_SIZE=2", "error: RANK 0 of WORLD_SIZE 2, LOCAL_RANK 2 of LOCAL_WORLD_SIZE 2 contradict"},
		{"PMIX_RANK=1 PMIX_NAMESPACE=n", "error: PMIX_RANK is 1, and nothing says how many"}, // prterun of Open MPI 5
		{"RANK=0 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=65536", "error: want a port from 1 to 65535"},
		{"RANK=x WORLD_SIZE=2", "error: RANK is \"x\", want a whole number from 0 to 2147483647"},
		{"RANK=0 WORLD_SIZE=100000000000000000000", "error: WORLD_SIZE is \"100000000000000000000\", want a whole number from 1 to 2147483647"},
		{"RANK=0 WORLD_SIZE=0", "error: WORLD_SIZE is \"0\""},
		{"RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=3", "error: contradict"},
		// Some variables without the others.
		{"RANK=0", "error: RANK without WORLD_SIZE"},
		{"WORLD_SIZE=2", "error: WORLD_SIZE without RANK"},
		{"LOCAL_RANK=1 LOCAL_WORLD_SIZE=2", "error: LOCAL_RANK and LOCAL_WORLD_SIZE without RANK and WORLD_SIZE"},
		{"RANK=0 WORLD_SIZE=2 LOCAL_RANK=0", "error: LOCAL_RANK without LOCAL_WORLD_SIZE"},
		{"RANK=0 WORLD_SIZE=2 MASTER_ADDR=h", "error: MASTER_ADDR without MASTER_PORT"},
		{"PMI_RANK=1", "error: PMI_RANK without PMI_SIZE"},
		{open2 + "MASTER_PORT=5", "error: MASTER_PORT without MASTER_ADDR"},
		// Ranks that a shell on another machine has started cannot be found.
		{"RANK=1 WORLD_SIZE=2", "error: MASTER_ADDR to the machine of rank 0 (127.0.0.1, if all are on one)"},

		// Several launchers: they say the same, or one is around the other.
		{open2 + "RANK=1 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=5", "Open MPI 1/2 1/2 h:5 false n"}, // mpirun of a script that translates
		{"PMI_RANK=3 PMI_SIZE=4 PMI_JOBID=7 " + step + "SLURM_PROCID=3 SLURM_STEP_NUM_TASKS=4 SLURM_LOCALID=1 SLURM_STEP_TASKS_PER_NODE=2(x2)", "Slurm 3/4 1/2 n1:26582 false 7/0"},
		{torch + oneOf2, "torchrun 3/4 1/2 h:5 true j/5"},
		{torch + "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1", "torchrun 3/4 1/2 h:5 true j/5"},
		{"PMI_RANK=3 PMI_SIZE=4 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2 MASTER_ADDR=h MASTER_PORT=5 " + oneOf2, "MPICH 3/4 1/2 h:5"},            // srun started hydra's proxies
		{open2 + step + "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 SLURM_LOCALID=0 SLURM_STEP_TASKS_PER_NODE=1 SLURM_NODEID=0", "Open MPI 1/2"}, // srun --pty bash
		{snug2 + open1 + "RANK=5", "snug 1/2 1/2 h:1 false x"},
		{open1 + "RANK=1 WORLD_SIZE=4 MASTER_ADDR=h MASTER_PORT=5", "error: Open MPI OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 (rank 0 of 1, 0 of 1 on this machine) and a script RANK=1 WORLD_SIZE=4 (rank 1 of 4, 1 of 4 on this machine) contradict each other: unset the variables of the one that did not start this process, or name the other by SNUG_LAUNCHER=openmpi"},
		{open2 + step + "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID=0 SLURM_STEP_TASKS_PER_NODE=2 SLURM_NODEID=0", "error: contradict each other"}, // srun -n 2 mpirun -n 2
		{open2 + "PMI_RANK=0 PMI_SIZE=2", "error: contradict each other"},
		{open2 + "RANK=1 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=h MASTER_PORT=5", "error: contradict each other"},
		{torch + step + "SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=4 SLURM_LOCALID=1 SLURM_STEP_TASKS_PER_NODE=4", "error: contradict each other"},
		// Several launchers, one of which is named.
		{open1 + "RANK=1 WORLD_SIZE=4 MASTER_ADDR=h MASTER_PORT=5 SNUG_LAUNCHER=script", "a script 1/4 1/4 h:5"},
		{open1 + "RANK=1 WORLD_SIZE=4 SNUG_LAUNCHER=openmpi", "Open MPI 0/1 0/1"},
		{open2 + "RANK=1 SNUG_LAUNCHER=none", "<nil>"},
		{snug2 + "SNUG_LAUNCHER=none", "snug 1/2"}, // of the process that started this one
		{open2 + "SNUG_LAUNCHER=slurm", "error: SNUG_LAUNCHER is slurm, whose variables are not set"},
		{"SNUG_LAUNCHER=mpirun", "error: SNUG_LAUNCHER is \"mpirun\": want none or one of snug, torchrun, openmpi"},
	} {
		l, err := dist.FindLaunch(env(x.env))
		got := "<nil>"
		switch {
		case err != nil:
			got = "error: " + err.Error()
		case l != nil:
			got = fmt.Sprintf("%s %d/%d %d/%d %s %v %s", l.By, l.Rank, l.World, l.LocalRank, l.LocalWorld, l.Address, l.Store, l.Job)
		}
		text, refused := strings.CutPrefix(x.want, "error: ")
		if refused != (err != nil) || refused && !strings.Contains(got, text) || !refused && !strings.HasPrefix(got, x.want) {
			t.Errorf("%s: %s, want %s", x.env, got, x.want)
		}
	}
}

// The environment is returned even if it contradicts itself, and without secrets.
func TestEnvironment(t *testing.T) {
	e, err := dist.ReadEnvironment(env("SNUG_RANK=1 SNUG_WORLD_SIZE=2 SNUG_ADDRESS=h:1 SNUG_TOKEN=secret RANK=7"))
	var texts []string
	for _, f := range e.Families {
		texts = append(texts, fmt.Sprint(f.By, " ", f.Variables, " ", f.Place, ": ", f.Role))
	}
	const want = "snug [SNUG_RANK=1 SNUG_WORLD_SIZE=2] rank 1 of 2, 1 of 2 on this machine: counts; a script [RANK=7] : around snug --nproc"
	if got := strings.Join(texts, "; "); err != nil || got != want {
		t.Errorf("%v\n%s, want\n%s", err, got, want)
	}
	e, err = dist.ReadEnvironment(env("PMI_RANK=0 PMI_SIZE=2 RANK=x WORLD_SIZE=2"))
	if err == nil || e.Launch != nil || len(e.Families) != 2 || e.Families[0].Role != "contradicts itself" || e.Families[1].Place != "rank 0 of 2, 0 of 2 on this machine" {
		t.Errorf("%v, %+v", err, e.Families)
	}
}

// launched joins the ranks of a launch.
func launched(t *testing.T, world int, launch func(rank int) *dist.Launch) {
	t.Helper()
	errs := make([]error, world)
	var all sync.WaitGroup
	for r := range world {
		all.Go(func() {
			g, err := launch(r).Join(context.Background())
			if err == nil {
				err = errors.Join(dist.Barrier(g), g.Leave(nil))
			}
			errs[r] = err
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

func TestJoinByFile(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	for range 2 { // a file of an earlier job does not matter
		launched(t, 3, func(rank int) *dist.Launch {
			return &dist.Launch{By: "Open MPI", Rank: rank, World: 3, LocalRank: rank, LocalWorld: 3, Job: "j"}
		})
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 || files[0].Type().Perm()&0o077 != 0 {
		t.Errorf("%v, %v", files, err)
	}
}

func TestJoinByAddress(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	launched(t, 2, func(rank int) *dist.Launch {
		return &dist.Launch{By: "torchrun", Rank: rank, World: 2, LocalRank: rank, LocalWorld: 2, Address: address, Job: "j"}
	})
}

// Uses a real PyTorch store, where SNUG_PYTHON names a Python that has it.
func TestJoinByStore(t *testing.T) {
	port := tcpStore(t)
	launched(t, 3, func(rank int) *dist.Launch {
		return &dist.Launch{By: "torchrun", Rank: rank, World: 3, LocalRank: rank, LocalWorld: 3, Address: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), Store: true, Job: "j"}
	})
}
