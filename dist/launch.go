package dist

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/snug-ml/snug/internal/durable"
	"github.com/snug-ml/snug/internal/regular"
)

// Launch describes how this process was started as one of several.
type Launch struct {
	By          string // snug, torchrun, Open MPI, ...
	Rank, World int
	// LocalRank is the process's number on this machine, LocalWorld how many there are.
	LocalRank, LocalWorld int
	// Address is rank 0's address, host:port. With Store it is the address of torch's
	// store, which knows rank 0's. If it is empty, all ranks are on this machine, and
	// rank 0's address is in a file named by Job.
	Address string
	Store   bool
	// Job distinguishes runs; it is the group's token.
	Job string
	// Listener is rank 0's listener, if the launcher opened it.
	Listener net.Listener
	// Machines means that the launcher started one process on each machine, which may start more
	// there ([Launch.Spread]): ranks number the machines. Each is how many processes the
	// launcher asks for on each machine, empty if it does not say.
	Machines bool
	Each     string
	// Asked is what this process was asked to do, by name: ranks that were asked to do
	// different things refuse each other.
	Asked map[string]string
	// Silence is how long a rank may give no sign of life, 0: the default of [Options].
	Silence time.Duration

	rank string // the variable with the rank, and its value
}

func (f *Launch) String() string { return f.By + ": " + f.Place() }

// Place describes the process's place among the others.
func (f *Launch) Place() string {
	if f.Machines {
		return fmt.Sprintf("machine %d of %d", f.Rank, f.World)
	}
	return fmt.Sprintf("rank %d of %d, %d of %d on this machine", f.Rank, f.World, f.LocalRank, f.LocalWorld)
}

// find determines where the ranks meet.
func (f *Launch) find(getenv func(string) string) error {
	if f.World == 1 || f.Machines {
		return nil
	}
	if f.By == "snug" {
		f.Address = getenv("SNUG_ADDRESS")
		return nil
	}
	if err := half(getenv, "MASTER_ADDR", "MASTER_PORT"); err != nil {
		return fmt.Errorf("%s: where the processes meet: %w", f.By, err)
	}
	switch host, port := getenv("MASTER_ADDR"), getenv("MASTER_PORT"); {
	case host != "":
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return fmt.Errorf("MASTER_PORT is %q, want a port from 1 to 65535", port)
		}
		f.Address, f.Store = net.JoinHostPort(host, port), getenv("TORCHELASTIC_USE_AGENT_STORE") == "True"
	case f.LocalWorld == f.World && f.By != script: // by a file
	case f.By == slurm:
		f.Address = net.JoinHostPort(firstNode(getenv("SLURM_STEP_NODELIST")), strconv.Itoa(portOf(f.Job)))
	default:
		return fmt.Errorf("nothing says where the %d processes meet: set MASTER_ADDR to the machine of rank 0 (127.0.0.1, if all are on one) and MASTER_PORT to a free port there, for all processes", f.World)
	}
	return nil
}

// Meeting says where the ranks find each other.
func (f *Launch) Meeting() string {
	switch {
	case f.Store:
		return "through the store of " + f.By + " at " + f.Address
	case f.Address == "":
		return "through a file on this machine"
	}
	return "at " + f.Address
}

// firstNode is the first name of a list such as node[3-5,7],other2.
func firstNode(list string) string {
	name, rest, bracket := strings.Cut(list, "[")
	if first, _, several := strings.Cut(name, ","); several || !bracket {
		return first
	}
	digits := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if digits < 0 {
		return name
	}
	_, after, _ := strings.Cut(rest, "]")
	after, _, _ = strings.Cut(after, ",")
	return name + rest[:digits] + after
}

// portOf returns a port for a job, the same on all its machines.
func portOf(job string) int {
	h := sha256.Sum256([]byte(job))
	return 20000 + (int(h[0])<<8|int(h[1]))%20000
}

// Join connects the processes that were launched together to a group.
func (f *Launch) Join(ctx context.Context) (Group, error) {
	o := Options{Rank: f.Rank, World: f.World, Address: f.Address, Listener: f.Listener, Token: f.Job, Asked: f.Asked, Silence: f.Silence}
	ctx, cancel := context.WithTimeout(ctx, Meet)
	defer cancel()
	switch {
	case f.World == 1:
		return InProcess(1)[0], nil
	case f.Store:
		return f.byStore(ctx, o)
	case f.Address == "":
		return f.byFile(ctx, o)
	case f.Machines && f.Rank == 0:
		var err error
		if o.Listener, err = f.Listen(ctx); err != nil {
			return nil, err
		}
	}
	return Open(ctx, o)
}

// byStore finds rank 0's address in torch's store.
func (f *Launch) byStore(ctx context.Context, o Options) (Group, error) {
	s, err := dialStore(ctx, f.Address)
	if err != nil {
		return nil, fmt.Errorf("the store of %s at %s: %w", f.By, f.Address, err)
	}
	defer func() { _ = s.Close() }() // read to its end, or no longer needed
	key := "snug/address/" + f.Job
	if f.Rank > 0 {
		address, err := s.get(key)
		if err != nil {
			return nil, fmt.Errorf("the store of %s at %s: %w", f.By, f.Address, err)
		}
		o.Address = string(address)
		return Open(ctx, o)
	}
	// The address by which this machine reaches the store is one that the others can
	// reach.
	if o.Listener, err = s.listen(ctx); err != nil {
		return nil, err
	}
	if err := s.set(key, []byte(o.Listener.Addr().String())); err != nil {
		return nil, errors.Join(fmt.Errorf("the store of %s at %s: %w", f.By, f.Address, err), o.Listener.Close())
	}
	return Open(ctx, o)
}

// byFile finds rank 0's address in a file on this machine.
func (f *Launch) byFile(ctx context.Context, o Options) (Group, error) {
	job := f.Job
	if job == "" {
		job = launcherOf(f.rank)
	}
	h := sha256.Sum256([]byte(f.By + " " + job))
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("snug-%d", os.Getuid()))
	file := filepath.Join(dir, hex.EncodeToString(h[:8]))
	if f.Rank > 0 {
		for {
			b, err := regular.Read(file, maxGreeting)
			if address, token, ok := strings.Cut(string(b), " "); err == nil && ok && listens(ctx, address) {
				o.Address, o.Token = address, token
				return Open(ctx, o)
			}
			select {
			case <-ctx.Done():
				return nil, fmt.Errorf("rank %d waits for rank 0 to write %s: %w", f.Rank, file, ctx.Err())
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	o.Listener, o.Token = l, rand.Text()
	if err := durable.Replace(file, []byte(l.Addr().String()+" "+o.Token)); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	defer func() { _ = os.Remove(file) }() // the next job of this name writes its own
	return Open(ctx, o)
}

// listens reports whether an address is being listened on: the file may be left over from
// a job that was killed.
func listens(ctx context.Context, address string) bool {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	return err == nil && c.Close() == nil
}
