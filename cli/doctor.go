package cli

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/snug-ml/snug/dist"
	"github.com/snug-ml/snug/dist/mpi"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/session"
)

type doctorCmd struct {
	Exchange bool `help:"Show only what the processes of a run could exchange gradients over, and what hardware.exchange auto would choose."`
}

// Help implements kong.HelpProvider.
func (doctorCmd) Help() string {
	return `Cards are tried: a kernel is assembled and run, memory is copied both ways and timed, a
graph is captured and replayed, and NVIDIA's management library is read. What fails is
named with the call of the driver and what to do next.

Exit codes: 0 nothing is wrong, 1 runs would fail on a card (or on all of them: the driver is too
old), 2 wrong usage.`
}

// Run implements the command.
func (d *doctorCmd) Run(a *app) error {
	// A launcher that contradicts itself is refused when the page is printed.
	over, contradiction := lookAtExchange()
	if d.Exchange {
		if a.asJSON {
			return errors.Join(contradiction, a.json(over))
		}
		a.printf("Between the processes of a run\n")
		return errors.Join(contradiction, a.table(append(over.rows(), []string{"  hardware.exchange auto", over.Auto})))
	}
	x, err := lookAtMachine(a.ctx, over)
	if err != nil {
		return err
	}
	if a.asJSON {
		return errors.Join(contradiction, x.failing(), a.json(x))
	}
	return errors.Join(contradiction, x.print(a), x.failing())
}

// exchange is what the processes of a run could exchange gradients over.
type exchange struct {
	Launcher string   `json:"launcher"`
	Launch   launched `json:"launch"`
	MPI      string   `json:"mpi"`
	NCCL     string   `json:"nccl"`
	Auto     string   `json:"exchange"` // what hardware.exchange auto would choose

	found      dist.Environment
	cards      int
	cardsError error // why no card could be counted or tried
}

// lookAtExchange returns an error if the environment does not say clearly what launched this process.
func lookAtExchange() (x exchange, contradiction error) {
	x.found, contradiction = dist.ReadEnvironment(os.Getenv)
	x.Launch = launchedBy(x.found)
	processes := 0
	switch l := x.found.Launch; {
	case contradiction != nil:
		x.Launcher = "unclear: " + contradiction.Error()
		contradiction = session.UsageError{Err: contradiction}
	case l != nil:
		x.Launcher, processes = l.String(), l.LocalWorld
	default:
		x.Launcher = "none"
	}
	if l, err := mpi.Find(""); err == nil {
		x.MPI = fmt.Sprintf("%v, with the interface of %s", l, l.ABI)
	} else {
		x.MPI = "none: " + err.Error()
	}
	if l, err := session.FindNCCL(""); err == nil {
		x.NCCL = l.String()
	} else {
		x.NCCL = "none: " + err.Error()
	}
	cards, err := backend.Cards()
	x.cards, x.cardsError = len(cards), err
	x.Auto = session.AutoExchange(processes, x.cards)
	return x, contradiction
}

// rows lists what launchers have told this process, and in which variables, and the libraries.
func (x *exchange) rows() [][]string {
	rows := [][]string{{"  launcher", x.Launcher}}
	if l := x.found.Launch; l != nil && l.World > 1 {
		node, err := os.Hostname()
		if err != nil {
			node = "unknown: " + err.Error()
		}
		rows = append(rows, []string{"  this machine", node}, []string{"  processes meet", l.Meeting()})
	}
	for _, f := range x.found.Families {
		text := f.Role + ": " + strings.Join(f.Variables, ", ")
		if f.Place != "" && f.Role != dist.Counts {
			text = f.Place + ", " + text
		}
		rows = append(rows, []string{"  variables of " + f.By, text})
	}
	return append(rows, []string{"  MPI", x.MPI}, []string{"  NCCL", x.NCCL})
}

// launched is what the environment says about how this process was launched.
type launched struct {
	Families []launcherVariables `json:"families"`
	*position
}

// launcherVariables is the variables of one launcher.
type launcherVariables struct {
	Launcher  string   `json:"launcher"`
	Variables []string `json:"variables"`
	Place     string   `json:"place,omitempty"`
	Role      string   `json:"role"`
}

// position is this process's place among those launched together.
type position struct {
	By         string `json:"by"`
	Rank       int    `json:"rank"`
	World      int    `json:"world"`
	LocalRank  int    `json:"local_rank"`
	LocalWorld int    `json:"local_world"`
	Meeting    string `json:"meeting"`
}

func launchedBy(e dist.Environment) launched {
	out := launched{Families: []launcherVariables{}}
	for _, f := range e.Families {
		out.Families = append(out.Families, launcherVariables{f.By, f.Variables, f.Place, f.Role})
	}
	if l := e.Launch; l != nil {
		out.position = &position{l.By, l.Rank, l.World, l.LocalRank, l.LocalWorld, l.Meeting()}
	}
	return out
}
