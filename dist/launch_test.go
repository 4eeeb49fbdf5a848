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
	for _, x := range []struct{ env, want string }{
		{"", "<nil>"},
		{"SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_JOB_ID=7", "<nil>"}, // a batch script
		{"SNUG_RANK=1 SNUG_WORLD_SIZE=2 SNUG_LOCAL_RANK=1 SNUG_LOCAL_WORLD_SIZE=2 SNUG_ADDRESS=h:1 SNUG_TOKEN=x", "snug 1/2 1/2 h:1 false x"},
		{"RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=5 TORCHELASTIC_USE_AGENT_STORE=True TORCHELASTIC_RUN_ID=j", "torchrun 3/4 1/2 h:5 true j/5"},
		{"RANK=3 WORLD_SIZE=4 MASTER_ADDR=h MASTER_PORT=5", "torchrun 3/4 3/4 h:5 false 5"},
		{"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=n", "Open MPI 1/2 1/2  false n"},
		{"PMI_RANK=0 PMI_SIZE=2", "MPICH 0/2 0/2  false "},
		{"PMI_RANK=3 PMI_SIZE=4 PMI_JOBID=7 SLURM_PROCID=3 SLURM_STEP_NUM_TASKS=4 SLURM_LOCALID=1 SLURM_STEP_TASKS_PER_NODE=2(x2) SLURM_STEP_NODELIST=n[1-2] SLURM_JOB_ID=7 SLURM_STEP_ID=0", "Slurm 3/4 1/2 n1:26582 false 7/0"},
		{"PMI_RANK=0 PMI_SIZE=4 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2", "error: set MASTER_ADDR to the machine of rank 0"},
		{"SLURM_PROCID=5 SLURM_STEP_NUM_TASKS=6 SLURM_LOCALID=1 SLURM_STEP_TASKS_PER_NODE=2(x3) SLURM_STEP_NODELIST=n[07-09] SLURM_JOB_ID=7 SLURM_STEP_ID=0", "Slurm 5/6 1/2 n07:"},
		{"SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID=0 SLURM_STEP_TASKS_PER_NODE=1(x2) SLURM_STEP_NODELIST=a,b SLURM_JOB_ID=7", "Slurm 1/2 0/1 a:"},
		{"RANK=2 WORLD_SIZE=2", "error: contradict"},
		{"RANK=0 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=65536", "error: want a port from 1 to 65535"},
		{"RANK=x WORLD_SIZE=2", "error: RANK is \"x\", want a number from 0 on"},
		{"RANK=0 WORLD_SIZE=0", "error: WORLD_SIZE is \"0\""},
		{"RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=3", "error: contradict"},
	} {
		l, err := dist.FindLaunch(env(x.env))
		got := "<nil>"
		switch {
		case err != nil:
			if text, ok := strings.CutPrefix(x.want, "error: "); !ok || !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %v", x.env, err)
			}
			continue
		case l != nil:
			got = fmt.Sprintf("%s %d/%d %d/%d %s %v %s", l.By, l.Rank, l.World, l.LocalRank, l.LocalWorld, l.Address, l.Store, l.Job)
		}
		if !strings.HasPrefix(got, x.want) {
			t.Errorf("%s: %s, want %s", x.env, got, x.want)
		}
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

// With a real store of PyTorch's, where SNUG_PYTHON names a Python that has it.
func TestJoinByStore(t *testing.T) {
	port := tcpStore(t)
	launched(t, 3, func(rank int) *dist.Launch {
		return &dist.Launch{By: "torchrun", Rank: rank, World: 3, LocalRank: rank, LocalWorld: 3, Address: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), Store: true, Job: "j"}
	})
}
