package dist

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"strconv"

	"github.com/snug-ml/snug/internal/regular"
)

// machineLauncher starts one process on each machine, in a container.
type machineLauncher struct {
	name, key string
	variables []string
	find      func(getenv func(string) string) (*Launch, error)
}

var machineLaunchers = []machineLauncher{
	{"Kubeflow Trainer", "kubeflow", []string{"PET_NODE_RANK", "PET_NNODES", "PET_NPROC_PER_NODE", "PET_MASTER_ADDR", "PET_MASTER_PORT"}, kubeflow},
	{"SageMaker", "sagemaker", []string{"TRAINING_JOB_NAME"}, sageMaker},
}

// family reads the launcher's variables; if none is set there is no family.
func (l *machineLauncher) family(getenv func(string) string) (Family, error) {
	f := Family{By: l.name, key: l.key}
	var err error
	if f.launch, err = l.find(getenv); err == nil && f.launch == nil {
		return f, nil
	}
	f.Variables = set(getenv, l.variables...)
	if err != nil {
		return f, err
	}
	f.launch.By, f.launch.Machines, f.launch.LocalWorld = l.name, true, 1
	if f.launch.Rank >= f.launch.World {
		return f, fmt.Errorf("machine %d of %d: they count from 0", f.launch.Rank, f.launch.World)
	}
	return f, nil
}

// kubeflow reads what the torch policy of Kubeflow Trainer gives a container: the variables
// that torchrun takes as its arguments
// (github.com/kubeflow/trainer, pkg/runtime/framework/plugins/torch).
func kubeflow(getenv func(string) string) (*Launch, error) {
	if len(set(getenv, "PET_NNODES", "PET_NODE_RANK")) == 0 {
		return nil, nil
	}
	if err := half(getenv, "PET_NNODES", "PET_NODE_RANK"); err != nil {
		return nil, err
	}
	rank, err1 := number(getenv, "PET_NODE_RANK", 0)
	world, err2 := number(getenv, "PET_NNODES", 1)
	host, port := getenv("PET_MASTER_ADDR"), getenv("PET_MASTER_PORT")
	var err3 error
	if n, err := strconv.Atoi(port); host == "" || err != nil || n < 1 || n > 65535 {
		err3 = fmt.Errorf("PET_MASTER_ADDR is %q and PET_MASTER_PORT %q: want the host of the first machine, and a port from 1 to 65535", host, port)
	}
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	return &Launch{Rank: rank, World: world, Address: net.JoinHostPort(host, port), Job: host, Each: getenv("PET_NPROC_PER_NODE")}, nil
}

// resourceConfig is the file in which SageMaker names the hosts of a training job.
var resourceConfig = "/opt/ml/input/config/resourceconfig.json"

const maxResourceConfig = 1 << 20

// sageMaker reads the hosts of a training job from the file that the platform writes, the
// only source in an image that is not built on SageMaker's Python toolkit. Ranks follow the
// order of the hosts' names.
func sageMaker(getenv func(string) string) (*Launch, error) {
	job := getenv("TRAINING_JOB_NAME")
	if job == "" {
		return nil, nil
	}
	b, err := regular.Read(resourceConfig, maxResourceConfig)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // the variable is someone else's
	}
	var c struct {
		Host  string   `json:"current_host"`
		Hosts []string `json:"hosts"`
	}
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", resourceConfig, err)
	}
	slices.Sort(c.Hosts)
	rank := slices.Index(c.Hosts, c.Host)
	if rank < 0 {
		return nil, fmt.Errorf("%s: current_host %q is not one of hosts %q", resourceConfig, c.Host, c.Hosts)
	}
	return &Launch{Rank: rank, World: len(c.Hosts), Address: net.JoinHostPort(c.Hosts[0], strconv.Itoa(portOf(job))), Job: job}, nil
}

// Spread turns the launch of a machine into that of the first of its n processes. auto means that
// n is what the machine has room for, as a launcher may have requested without giving a number.
func (f *Launch) Spread(n int, auto bool) error {
	n = max(1, n)
	_, err := strconv.Atoi(f.Each)
	switch named := err == nil; {
	case f.Each == "" || f.Each == strconv.Itoa(n) || auto && !named:
	case named:
		return fmt.Errorf("%s asks for %s processes on each machine, and --nproc starts %d: give --nproc %s, or set numProcPerNode to %d in the TrainJob", f.By, f.Each, n, f.Each, n)
	default:
		return fmt.Errorf("%s asks for %q processes on each machine: give --nproc auto, or set numProcPerNode to a number in the TrainJob, and give --nproc the same where it is more than 1", f.By, f.Each)
	}
	f.Rank, f.World, f.LocalWorld = f.Rank*n, f.World*n, n
	return nil
}

// Listen opens rank 0's port on the first machine, on all its addresses: the machine may not be
// able to resolve its own name yet.
func (f *Launch) Listen(ctx context.Context) (net.Listener, error) {
	_, port, err := net.SplitHostPort(f.Address)
	if err != nil {
		return nil, fmt.Errorf("the address of rank 0, %q: %w", f.Address, err)
	}
	return new(net.ListenConfig).Listen(ctx, "tcp", ":"+port)
}
