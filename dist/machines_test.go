package dist

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Launchers that start one process on each machine, and how many ranks each machine gets.
func TestMachineLaunchers(t *testing.T) {
	kubeflow := "PET_NNODES=4 PET_NODE_RANK=2 PET_MASTER_ADDR=job-node-0-0.job PET_MASTER_PORT=29500 "
	for _, x := range []struct {
		env, config string
		n           int
		want        string // the result of Spread, or the error
		rank, world int
	}{
		{kubeflow + "PET_NPROC_PER_NODE=1", "", 1, "job-node-0-0.job:29500", 2, 4},
		{kubeflow + "PET_NPROC_PER_NODE=1", "", 0, "job-node-0-0.job:29500", 2, 4},
		{kubeflow + "PET_NPROC_PER_NODE=3", "", 3, "job-node-0-0.job:29500", 6, 12},
		{kubeflow, "", 2, "job-node-0-0.job:29500", 4, 8},
		{kubeflow + "PET_NPROC_PER_NODE=3", "", 0, "error: give --nproc 3, or set numProcPerNode to 1", 0, 0},
		{kubeflow + "PET_NPROC_PER_NODE=auto", "", 1, "error: set numProcPerNode to a number", 0, 0},
		{kubeflow + "PET_NPROC_PER_NODE=auto", "", -1, "job-node-0-0.job:29500", 2, 4}, // as many as there is room for: one
		{kubeflow + "PET_NPROC_PER_NODE=2", "", -1, "error: give --nproc 2", 0, 0},
		{"PET_NNODES=4 PET_NODE_RANK=4 PET_MASTER_ADDR=h PET_MASTER_PORT=1", "", 1, "error: machine 4 of 4", 0, 0},
		{"PET_NNODES=4 PET_NODE_RANK=x PET_MASTER_ADDR=h PET_MASTER_PORT=1", "", 1, "error: PET_NODE_RANK is \"x\"", 0, 0},
		{"PET_NNODES=4 PET_NODE_RANK=1", "", 1, "error: PET_MASTER_ADDR is \"\"", 0, 0},
		{"TRAINING_JOB_NAME=j", `{"current_host": "algo-2", "hosts": ["algo-2", "algo-1"], "network_interface_name": "eth0"}`, 1, "algo-1:", 1, 2},
		{"TRAINING_JOB_NAME=j", `{"current_host": "algo-2", "hosts": ["algo-2", "algo-1"]}`, 4, "algo-1:", 4, 8},
		{"TRAINING_JOB_NAME=j", `{"current_host": "algo-3", "hosts": ["algo-2", "algo-1"]}`, 1, "error: current_host \"algo-3\" is not one of hosts", 0, 0},
		{"TRAINING_JOB_NAME=j", `{`, 1, "error: unexpected end", 0, 0},
		{"TRAINING_JOB_NAME=j", "", 1, "none", 0, 0},
		// torchrun within a container of either comes first.
		{kubeflow + "RANK=1 WORLD_SIZE=4 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=h MASTER_PORT=5 TORCHELASTIC_RUN_ID=j", "", 1, "torchrun", 0, 0},
		{"PET_NNODES=4 PET_MASTER_ADDR=h RANK=1 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=5 TORCHELASTIC_RUN_ID=j", "", 1, "torchrun", 0, 0},
		{"PET_NNODES=4 PET_MASTER_ADDR=h", "", 1, "error: PET_NNODES without PET_NODE_RANK", 0, 0},
		{kubeflow + "RANK=1 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=h MASTER_PORT=5", "", 1, "error: contradict each other", 0, 0},
	} {
		resourceConfig = filepath.Join(t.TempDir(), "resourceconfig.json")
		if x.config != "" {
			if err := os.WriteFile(resourceConfig, []byte(x.config), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		m := map[string]string{}
		for _, p := range strings.Fields(x.env) {
			name, value, _ := strings.Cut(p, "=")
			m[name] = value
		}
		f, err := FindLaunch(func(name string) string { return m[name] })
		if err == nil && f != nil && f.Machines {
			err = f.Spread(x.n, x.n < 0)
		}
		want, bad := strings.CutPrefix(x.want, "error: ")
		switch {
		case bad:
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s %s: %v, want %q", x.env, x.config, err, want)
			}
		case err != nil:
			t.Errorf("%s %s: %v", x.env, x.config, err)
		case want == "none" || f == nil:
			if want != "none" || f != nil {
				t.Errorf("%s %s: %v, want %s", x.env, x.config, f, want)
			}
		case want == f.By:
			if f.Machines {
				t.Errorf("%s: %v", x.env, f)
			}
		case !strings.HasPrefix(f.Address, want) || f.Rank != x.rank || f.World != x.world || f.LocalWorld != max(1, x.n):
			t.Errorf("%s %s: %v at %s, want rank %d of %d at %s", x.env, x.config, f, f.Address, x.rank, x.world, want)
		}
	}
}
