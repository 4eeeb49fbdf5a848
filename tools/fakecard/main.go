//go:build linux

// Fakecard runs a command with simulated NVIDIA cards: programs load a driver library whose cards interpret their kernels.
// The programs themselves are the same as on a machine with a card. A C compiler is needed.
//
//	go run ./tools/fakecard -- ./snug train --hardware.device cuda
//	go run ./tools/fakecard --card t4 --card a10 -- ./snug doctor
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/cuda/fakegpu"
	"github.com/snug-ml/snug/engine/cuda/fakegpu/libcuda"
	"github.com/snug-ml/snug/engine/cuda/ptxsim"
	"github.com/snug-ml/snug/internal/durable"
	"github.com/snug-ml/snug/internal/tool"
)

type options struct {
	Card    []string `help:"Card to simulate: t4, a10, h100, or slice, a part of an A100. Repeat it for several." enum:"t4,a10,h100,slice" default:"t4" sep:"none"`
	Cublas  bool     `help:"Also simulate cuBLASLt, as on machines with PyTorch or a CUDA toolkit."`
	Check   bool     `help:"Also detect data races and uninitialized reads in kernels. Takes about twice as long."`
	Command []string `arg:"" help:"Command to run, after --." passthrough:""`
}

var cards = map[string]driver.Card{"t4": fakegpu.T4, "a10": fakegpu.A10, "h100": fakegpu.H100, "slice": fakegpu.Slice}

func main() {
	var o options
	tool.Main(&o, "fakecard", "Runs a command with simulated NVIDIA cards.", o.run)
}

func (o *options) run(context.Context) (err error) {
	if o.Command[0] == "--" {
		o.Command = o.Command[1:]
	}
	if len(o.Command) == 0 {
		return errors.New("a command is missing after --")
	}
	folder, err := durable.Scratch("fakecard")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	m, err := libcuda.Start(folder, o.driver)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	c := exec.Command(o.Command[0], o.Command[1:]...)
	c.Stdin, c.Stdout, c.Stderr, c.Env = os.Stdin, os.Stdout, os.Stderr, os.Environ()
	for name, value := range m.Environment() {
		c.Env = append(c.Env, name+"="+value)
	}
	// A terminal sends Ctrl-C to the command too, which decides how to end, and needs the card until then.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	if err := c.Start(); err != nil {
		return err
	}
	go func() {
		for s := range signals {
			if s == syscall.SIGTERM {
				_ = c.Process.Signal(s) // it fails if the command has ended
			}
		}
	}()
	if err := c.Wait(); err != nil {
		return fmt.Errorf("%s: %w", o.Command[0], err)
	}
	return nil
}

// driver has the cards, each with a number of its own.
func (o *options) driver() *fakegpu.Driver {
	d := &fakegpu.Driver{}
	if o.Cublas {
		d.CublasLt, d.Slow = &fakegpu.CublasLt{}, 1000
	}
	if o.Check {
		d.Options.Checks = ptxsim.CheckAll
	}
	for i, name := range o.Card {
		c := cards[name]
		c.UUID = fmt.Sprintf("%s%02x", c.UUID[:len(c.UUID)-2], i)
		d.Installed = append(d.Installed, c)
	}
	return d
}
