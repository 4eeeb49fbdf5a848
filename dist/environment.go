package dist

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// launcher describes how a launcher gives its processes their places: the names of its
// variables.
type launcher struct {
	name                               string // as it is printed
	key                                string // as [LauncherVariable] names it
	rank, world, localRank, localWorld string
	job                                []string // all that are set count
	// perNode is set where localWorld lists how many processes each machine has; it names the
	// machine's number in that list.
	perNode string
	// mark is a variable that distinguishes the launcher from one with the same names; !NAME: it
	// is not set.
	mark string
}

// launchers are in the order in which they are looked for: a launcher that another one
// started comes first.
var launchers = []launcher{
	{name: "snug", key: "snug", rank: "SNUG_RANK", world: "SNUG_WORLD_SIZE", localRank: "SNUG_LOCAL_RANK", localWorld: "SNUG_LOCAL_WORLD_SIZE", job: []string{"SNUG_TOKEN"}},
	{name: "torchrun", key: "torchrun", rank: "RANK", world: "WORLD_SIZE", localRank: "LOCAL_RANK", localWorld: "LOCAL_WORLD_SIZE",
		job: []string{elastic, "TORCHELASTIC_RESTART_COUNT", "MASTER_PORT"}, mark: elastic},
	{name: "Open MPI", key: "openmpi", rank: "OMPI_COMM_WORLD_RANK", world: "OMPI_COMM_WORLD_SIZE", localRank: "OMPI_COMM_WORLD_LOCAL_RANK", localWorld: "OMPI_COMM_WORLD_LOCAL_SIZE", job: []string{"PMIX_NAMESPACE"}},
	{name: script, key: "script", rank: "RANK", world: "WORLD_SIZE", localRank: "LOCAL_RANK", localWorld: "LOCAL_WORLD_SIZE", job: []string{"MASTER_PORT"}, mark: "!" + elastic},
	{name: "MPICH", key: "mpich", rank: "PMI_RANK", world: "PMI_SIZE", localRank: "MPI_LOCALRANKID", localWorld: "MPI_LOCALNRANKS", job: []string{"PMI_JOBID"}},
	// A batch script, which is a single process, has the variables of the job too: only
	// srun sets those of a step.
	{name: slurm, key: "slurm", rank: "SLURM_PROCID", world: slurmTasks, localRank: "SLURM_LOCALID", localWorld: "SLURM_STEP_TASKS_PER_NODE", perNode: "SLURM_NODEID",
		job: []string{"SLURM_JOB_ID", "SLURM_STEP_ID"}, mark: slurmTasks},
}

const (
	elastic    = "TORCHELASTIC_RUN_ID"
	script     = "a script"
	slurm      = "Slurm"
	slurmTasks = "SLURM_STEP_NUM_TASKS"
)

// LauncherVariable names the launcher to use where several have left variables, by its key: snug,
// torchrun, openmpi, script, mpich, slurm, kubeflow or sagemaker. none: this process is alone.
const LauncherVariable = "SNUG_LAUNCHER"

// Environment is what launchers left in the environment of this process.
type Environment struct {
	// Launch is this process's place among several; nil: it is alone.
	Launch *Launch
	// Families are the variables that are set, in the order in which launchers are looked for.
	Families []Family
}

// Family is the set of variables of one launcher.
type Family struct {
	By        string
	Variables []string // NAME=value
	// Place is what the variables say; empty: they cannot be read.
	Place string
	// Role says whether the variables are used, and if not, why.
	Role string

	key    string
	launch *Launch // nil: unread
	local  bool    // the variables give the place on this machine
	group  int     // processes of the launcher around it, if the launcher says; otherwise 0
}

// Counts is the role of the variables that determine the launch.
const Counts = "counts"

// FindLaunch reads from the environment who launched this process as one of several; nil
// if it is alone.
func FindLaunch(getenv func(string) string) (*Launch, error) {
	e, err := ReadEnvironment(getenv)
	return e.Launch, err
}

// ReadEnvironment reads the variables of all launchers. If they contradict themselves or each
// other, it returns an error and the families read so far.
func ReadEnvironment(getenv func(string) string) (e Environment, err error) {
	asked := getenv(LauncherVariable)
	if getenv(launchers[0].rank) != "" { // the process that started this one has decided
		asked = launchers[0].key
	}
	if asked != "" && asked != "none" && !slices.Contains(keys(), asked) {
		return e, fmt.Errorf("%s is %q: want none or one of %s", LauncherVariable, asked, strings.Join(keys(), ", "))
	}
	var errs []error
	add := func(f Family, err error) {
		switch {
		case len(f.Variables) == 0 && err == nil:
			return
		case asked != "" && f.key != asked:
			f.Role, err = "not asked for by "+LauncherVariable, nil
			if asked == launchers[0].key {
				f.Role = "around snug --nproc"
			}
			f.launch = nil
		case err != nil:
			f.Role = "contradicts itself"
			err = fmt.Errorf("%s: %w", f.By, err)
		default:
			f.Place = f.launch.Place()
		}
		e.Families, errs = append(e.Families, f), append(errs, err)
	}
	for i := range launchers {
		add(launchers[i].family(getenv))
	}
	processes := slices.ContainsFunc(e.Families, func(f Family) bool { return f.launch != nil })
	for _, l := range machineLaunchers {
		f, err := l.family(getenv)
		// torchrun reads some of Kubeflow's variables, so they may be set for torchrun
		// alone.
		if !processes || !errors.As(err, new(halfError)) {
			add(f, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return e, err
	}
	if asked != "" && asked != "none" && !slices.ContainsFunc(e.Families, func(f Family) bool { return f.launch != nil }) {
		return e, fmt.Errorf("%s is %s, whose variables are not set", LauncherVariable, asked)
	}
	e.Launch, err = choose(e.Families)
	if rank := getenv("PMIX_RANK"); err == nil && e.Launch == nil && asked == "" && rank != "" {
		return e, fmt.Errorf("PMIX_RANK is %s, and nothing says how many processes were started: start them by the mpirun of an MPI library, or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT", rank)
	}
	if err == nil && e.Launch != nil {
		err = e.Launch.find(getenv)
	}
	return e, err
}

func keys() (list []string) {
	for i := range launchers {
		list = append(list, launchers[i].key)
	}
	for _, l := range machineLaunchers {
		list = append(list, l.key)
	}
	return list
}

// halfError reports that some of a launcher's variables are set without the others.
type halfError struct{ set, missing string }

func (e halfError) Error() string {
	return fmt.Sprintf("%s without %s: set all of them, or none", e.set, e.missing)
}

// half refuses two variables of which only one is set.
func half(getenv func(string) string, a, b string) error {
	switch has, other := getenv(a) != "", getenv(b) != ""; {
	case has && !other:
		return halfError{a, b}
	case other && !has:
		return halfError{b, a}
	}
	return nil
}

// set returns those of the named variables that are set, as NAME=value.
func set(getenv func(string) string, names ...string) (list []string) {
	for _, name := range names {
		if v := getenv(name); v != "" {
			list = append(list, name+"="+v)
		}
	}
	return list
}

// family reads the launcher's variables; if none is set there is no family.
func (l *launcher) family(getenv func(string) string) (f Family, err error) {
	f = Family{By: l.name, key: l.key}
	if name, not := strings.CutPrefix(l.mark, "!"); l.mark != "" && (getenv(name) != "") == not {
		return f, nil
	}
	if f.Variables = set(getenv, l.rank, l.world, l.localRank, l.localWorld); len(f.Variables) == 0 {
		return f, nil
	}
	if l.perNode != "" {
		f.Variables = append(f.Variables, set(getenv, l.perNode)...)
	}
	for _, name := range l.job {
		if !strings.HasSuffix(name, "TOKEN") { // a secret
			f.Variables = append(f.Variables, set(getenv, name)...)
		}
	}
	f.launch, f.local, err = l.read(getenv)
	if l.mark == elastic {
		f.group, _ = strconv.Atoi(getenv("GROUP_WORLD_SIZE"))
	}
	return f, err
}

// number returns the value of a variable that must be a number.
func number(getenv func(string) string, name string, least int) (int, error) {
	n, err := strconv.Atoi(getenv(name))
	if err != nil || n < least || n > math.MaxInt32 { // the most that launchers count
		return 0, fmt.Errorf("%s is %q, want a whole number from %d to %d", name, getenv(name), least, math.MaxInt32)
	}
	return n, nil
}

func (l *launcher) read(getenv func(string) string) (f *Launch, local bool, err error) {
	f = &Launch{By: l.name, rank: l.rank + "=" + getenv(l.rank)}
	var errs [6]error
	if getenv(l.rank) == "" && getenv(l.world) == "" { // only the variables of the machine are set
		return nil, false, halfError{strings.Join(names(set(getenv, l.localRank, l.localWorld)), " and "), l.rank + " and " + l.world}
	}
	if err := errors.Join(half(getenv, l.rank, l.world), half(getenv, l.localRank, l.localWorld)); err != nil {
		return nil, false, err
	}
	f.Rank, errs[0] = number(getenv, l.rank, 0)
	f.World, errs[1] = number(getenv, l.world, 1)
	if local = getenv(l.localRank) != ""; !local { // one machine, if nothing says otherwise
		f.LocalRank, f.LocalWorld = f.Rank, f.World
	} else {
		f.LocalRank, errs[2] = number(getenv, l.localRank, 0)
		if l.perNode != "" {
			f.LocalWorld, errs[3] = l.onNode(getenv, f.World)
		} else {
			f.LocalWorld, errs[3] = number(getenv, l.localWorld, 1)
		}
	}
	if err := errors.Join(errs[:]...); err != nil {
		return nil, local, err
	}
	// Local ranks need not be in the order of ranks: Open MPI 5's are not.
	if f.Rank >= f.World || f.LocalRank >= f.LocalWorld || f.LocalWorld > f.World {
		return nil, local, fmt.Errorf("%s %d of %s %d, %s %d of %s %d contradict each other: processes count from 0, and a machine has no more than all have",
			l.rank, f.Rank, l.world, f.World, l.localRank, f.LocalRank, l.localWorld, f.LocalWorld)
	}
	var job []string
	for _, name := range l.job {
		if v := getenv(name); v != "" {
			job = append(job, v)
		}
	}
	f.Job = strings.Join(job, "/")
	return f, local, nil
}

func names(pairs []string) (list []string) {
	for _, p := range pairs {
		name, _, _ := strings.Cut(p, "=")
		list = append(list, name)
	}
	return list
}

// onNode returns how many of the processes this machine has, by a list of all machines: 2(x3),1
// means 2 on each of three machines, and 1 on the fourth.
func (l *launcher) onNode(getenv func(string) string, world int) (int, error) {
	text := getenv(l.localWorld)
	bad := func() (int, error) {
		return 0, fmt.Errorf("%s is %q, want how many of the %d processes each machine has, such as 2(x3),1", l.localWorld, text, world)
	}
	var each []int
	for part := range strings.SplitSeq(text, ",") {
		count, times, repeated := strings.Cut(part, "(x")
		n, err := strconv.Atoi(count)
		k := 1
		if repeated {
			var errTimes error
			k, errTimes = strconv.Atoi(strings.TrimSuffix(times, ")"))
			err = errors.Join(err, errTimes)
		}
		if err != nil || n < 1 || k < 1 || k > world || repeated && !strings.HasSuffix(times, ")") {
			return bad()
		}
		each = append(each, slices.Repeat([]int{n}, k)...)
	}
	sum := 0
	for _, n := range each {
		sum += n
	}
	if sum != world {
		return bad()
	}
	if slices.Max(each) == slices.Min(each) {
		return each[0], nil
	}
	node, err := number(getenv, l.perNode, 0)
	if err == nil && node >= len(each) {
		err = fmt.Errorf("%s is %d, of %d machines in %s %q", l.perNode, node, len(each), l.localWorld, text)
	}
	if err != nil {
		return 0, err
	}
	return each[node], nil
}

// choose returns the launch that the families describe. They must agree on it or lie around it.
func choose(families []Family) (*Launch, error) {
	var chosen *Family
	for i := range families {
		f := &families[i]
		switch {
		case f.launch == nil:
		case chosen == nil, f.same(chosen) && f.local && !chosen.local:
			chosen = f // the first, or the more detailed of those that say the same
		}
	}
	if chosen == nil {
		return nil, nil
	}
	chosen.Role = Counts
	for i := range families {
		switch f := &families[i]; {
		case f == chosen || f.launch == nil:
		case f.same(chosen):
			f.Role = "says the same"
		case f.around(chosen):
			f.Role = "around " + chosen.By
		default:
			f.Role = "contradicts " + chosen.By
			return nil, fmt.Errorf("%s (%s) and %s (%s) contradict each other: unset the variables of the one that did not start this process, or name the other by %s=%s",
				chosen.named(), chosen.Place, f.named(), f.Place, LauncherVariable, chosen.key)
		}
	}
	return chosen.launch, nil
}

// named returns the family's name with its first variables.
func (f *Family) named() string {
	return strings.Join(append([]string{f.By}, f.Variables[:min(2, len(f.Variables))]...), " ")
}

// same reports whether two families say the same.
func (f *Family) same(g *Family) bool {
	a, b := f.launch, g.launch
	return a.Rank == b.Rank && a.World == b.World && a.Machines == b.Machines &&
		(!f.local || !g.local || a.LocalRank == b.LocalRank && a.LocalWorld == b.LocalWorld)
}

// around reports whether the launcher of f started whatever then started g's processes: each
// process of f is then a machine of g.
func (f *Family) around(g *Family) bool {
	a, b := f.launch, g.launch
	agents := b.World
	if g.group > 0 {
		agents = g.group
	}
	switch {
	case a.Machines: // Kubeflow Trainer gives every container its variables
		return !b.Machines && a.World <= b.World
	case g.key == "torchrun": // whose agents someone started
		return a.World == agents || a.World >= agents && a.LocalWorld == 1
	case f.key == "slurm": // mpirun starts its daemons with srun, or a user works in a shell that srun opened
		return a.LocalWorld == 1 && a.World <= b.World
	}
	return false
}
