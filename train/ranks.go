package train

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"time"

	"github.com/snug-ml/snug/dist"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/train/checkpoint"
)

// ranks is a job's part in a run of several processes. All of them run the same job on the
// same data: each computes some of the micro-batches of an update and some of those of an
// evaluation, and all perform the update itself. Only rank 0 saves and reports.
type ranks struct {
	dist.Group
	exchange *exchange
	losses   [][]byte // gathered after an update, by rank
}

// Buffered returns the states, other than gradients, that micro-batches change, such as
// the running statistics of batch normalization. After an update all ranks take rank 0's.
func Buffered(p *engine.Program) (names []string) {
	for _, f := range p.Funcs {
		if !engine.IsVariant(f.Name, engine.FuncMicro) {
			continue
		}
		for _, n := range f.F.Nodes {
			for _, name := range n.Changes() {
				if s := p.State(name); s.Role != graph.Gradient && s.Role != graph.Transient && !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
		}
	}
	slices.Sort(names)
	return names
}

// join makes the job that of a rank.
func (j *Job) join(ctx context.Context) (*ranks, error) {
	if j.Group == nil {
		return nil, nil
	}
	p := j.Runner.Program()
	losses := p.State(engine.StateLosses)
	if losses == nil {
		return nil, j.Sums.Shareable(1, j.Group.World())
	}
	e, err := newExchange(ctx, j.Group, j.Runner, wireOf(j.Exchange), j.Sums, j.NCCL)
	if err != nil {
		return nil, err
	}
	r := &ranks{Group: j.Group, exchange: e, losses: make([][]byte, j.Group.World())}
	for i := range r.losses {
		r.losses[i] = make([]byte, facts+losses.Type.Bytes())
	}
	return r, nil
}

// turns says which micro-batches this process computes.
func (j *Job) turns() turns {
	if j.ranks == nil {
		return turns{0, 1, 0}
	}
	return j.ranks.exchange.turns
}

// turnsOf says which micro-batches of a program a rank computes.
func turnsOf(g dist.Group, p *engine.Program, how Sums) turns {
	t := turns{rank: g.Rank(), world: g.World()}
	if how == Tree {
		t.block = max(1, microBatches(p)/g.World())
	}
	return t
}

// leads reports whether this process saves and reports.
func (j *Job) leads() bool { return j.Group == nil || j.Group.Rank() == 0 }

// stops reports whether an update is abandoned before its micro-batch m: ranks decide
// that together, before each round.
func (j *Job) stops(ctx context.Context, u int64, m int) (bool, error) {
	switch {
	case j.ranks == nil:
		return ctx.Err() != nil, nil
	case j.outer() != nil && (m > 0 || !j.together(u)):
		return false, j.lost()
	case j.outer() != nil:
		return anybody(j.ranks, ctx.Err() != nil)
	}
	t := j.turns()
	switch _, round := t.of(m); {
	case !t.begins(m):
	case round == 0 || j.Sums != Ordered:
		stop, err := anybody(j.ranks, ctx.Err() != nil)
		if stop && err == nil {
			err = j.ranks.exchange.wait() // gradients may still be read
		}
		return stop, err
	default: // they said so in the previous round
		return j.ranks.exchange.stops(round)
	}
	return false, nil
}

// anybody reports whether any rank says yes.
func anybody(g dist.Group, yes bool) (bool, error) {
	own := []byte{0}
	if yes {
		own[0] = 1
	}
	parts, err := dist.Gather(g, own)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(parts, func(b []byte) bool { return b[0] != 0 }), nil
}

// compute runs this process's part of micro-batch m of u, which may begin a round.
func (j *Job) compute(ctx context.Context, u *Update, m, slot int) error {
	fn := engine.Variant(j.outputs.fn, u.Variant(m))
	if j.ranks == nil {
		return j.Runner.Run(fn, slot)
	}
	e := j.ranks.exchange
	if j.outer() != nil {
		if !e.turns.has(m) {
			return nil
		}
		return j.Runner.Run(fn, slot)
	}
	if e.turns.begins(m) {
		if r := e.round(ctx, m, u.Micro); r != nil {
			if err := e.begin(r); err != nil {
				return err
			}
		}
	}
	switch {
	case !e.turns.has(m):
		return nil
	case e.sums == Fast && m+e.turns.world < u.Micro: // more of this rank's follow
		return j.Runner.Run(fn, slot)
	}
	return e.run(fn, slot)
}

// round returns the round that begins with micro-batch m of micro; nil: none does.
func (e *exchange) round(ctx context.Context, m, micro int) *round {
	t := e.turns
	_, n := t.of(m)
	r := &round{ctx: ctx, first: n == 0, last: n+1 == t.rounds(micro), computed: t.ranks(n, micro), micro: n}
	r.mine = t.rank < r.computed
	switch e.sums {
	case Fast:
		if !r.last {
			return nil
		}
		r.first, r.computed = true, t.ranks(0, micro)
		r.mine = t.rank < r.computed
	case Tree:
		r.first, r.local, r.computed = true, !r.last, t.ranks(0, micro)
	}
	return r
}

// facts is how many bytes precede the losses in a message about an update: what every
// rank must have read identically.
const facts = 24

// putFacts writes the facts about an update to b.
func putFacts(b []byte, u *Update) {
	binary.LittleEndian.PutUint64(b, math.Float64bits(u.Weight))
	binary.LittleEndian.PutUint64(b[8:], uint64(u.Tokens))
	binary.LittleEndian.PutUint64(b[16:], uint64(u.Micro))
}

// otherData reports a rank whose facts are not this rank's.
func otherData(rank, me int, theirs, own []byte) error {
	of := func(b []byte) (weight float64, tokens, micro uint64) {
		return math.Float64frombits(binary.LittleEndian.Uint64(b)), binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint64(b[16:])
	}
	w, t, m := of(theirs)
	w0, t0, m0 := of(own)
	return fmt.Errorf("rank %d reads other data than rank %d (weight %v, tokens %d, micro-batches %d, not %v, %d, %d): every process must have the same data files", rank, me, w, t, m, w0, t0, m0)
}

// merge gives all ranks the result of an update: gradients, losses and buffers.
func (j *Job) merge(u *Update, s *Step) error {
	r := j.ranks
	if r == nil || j.outer() != nil {
		return nil
	}
	if err := r.exchange.wait(); err != nil {
		return err
	}
	together := time.Now()
	defer func() { s.Exchange += time.Since(together) }()
	own := r.losses[r.Rank()]
	putFacts(own, u)
	if err := j.Runner.ReadState(engine.StateLosses, own[facts:]); err != nil {
		return err
	}
	if err := r.AllGather(r.losses); err != nil {
		return err
	}
	losses := bytes.Clone(own[facts:])
	for rank, b := range r.losses {
		if !bytes.Equal(b[:facts], own[:facts]) {
			return otherData(rank, r.Rank(), b, own)
		}
		for m := range u.Micro {
			if whose, _ := r.exchange.turns.of(m); whose == rank {
				copy(losses[4*m:4*m+4], b[facts+4*m:])
			}
		}
	}
	if err := j.Runner.WriteState(engine.StateLosses, losses); err != nil {
		return err
	}
	return j.shareBuffers()
}

// shareBuffers gives every rank rank 0's states that micro-batches change.
func (j *Job) shareBuffers() error {
	for _, t := range j.before {
		if err := j.broadcast(t.Name); err != nil {
			return err
		}
	}
	return nil
}

// updated gives every rank the weights of an update whose work the ranks have shared.
func (r *ranks) updated(s *Step) error {
	if r == nil || r.exchange.x.Program().Outer != nil {
		return nil
	}
	together := time.Now()
	var err error
	if r.exchange.shared {
		err = r.exchange.spreadWeights()
	}
	waited, hidden := r.exchange.times()
	s.Exchange, s.Hidden = s.Exchange+waited+time.Since(together), hidden
	return err
}

// broadcast sends a state of rank 0 to every rank.
func (j *Job) broadcast(name string) error {
	t, err := j.Runner.State(name)
	if err != nil {
		return err
	}
	if err := j.Group.Broadcast(0, t.Data); err != nil || j.leads() {
		return err
	}
	return j.Runner.SetState(t)
}

// measured evaluates with all ranks; ok is false if one of them was interrupted.
func (r *ranks) measured(ctx context.Context, e Evaluator, x *engine.Executable, slot int) (metrics map[string]float64, ok bool, err error) {
	a, err := e.Accumulate(ctx, x, slot, Part{r.Rank(), r.World()})
	if err != nil && ctx.Err() == nil {
		return nil, false, err
	}
	stopped, err := anybody(r, err != nil)
	if err != nil || stopped {
		return nil, false, err
	}
	own, err := a.MarshalBinary()
	if err != nil {
		return nil, false, err
	}
	all, err := dist.AllGatherSized(r, own)
	if err != nil {
		return nil, false, err
	}
	for rank, b := range all {
		if rank == r.Rank() {
			continue
		}
		if err := a.MergeBinary(b); err != nil {
			return nil, false, fmt.Errorf("rank %d: %w", rank, err)
		}
	}
	metrics, err = a.Metrics()
	return metrics, err == nil, err
}

// same compares the weights of all ranks, which perform the same updates.
func (r *ranks) same(x *engine.Executable, u int64) error {
	sum, p := crc32.New(castagnoli), x.Program()
	for _, s := range p.States {
		switch {
		case s.Role == graph.Weight, s.Role == graph.Frozen, s.Role == graph.OuterMoment:
		case s.Role == graph.Moment && p.Shards == nil && p.Outer == nil:
		default:
			continue
		}
		if err := x.ScanState(s.Name, func(part engine.Tensor) bool {
			_, _ = sum.Write(part.Data) // a hash never fails to write
			return true
		}); err != nil {
			return err
		}
	}
	parts, err := dist.Gather(r, sum.Sum(nil))
	if err != nil {
		return err
	}
	for rank, b := range parts {
		if !bytes.Equal(b, parts[0]) {
			return fmt.Errorf("after update %d rank %d has other weights than rank 0: the processes do not compute alike (different processors, libraries or faulty memory); resume from the last checkpoint on machines of one kind", u, rank)
		}
	}
	return nil
}

// shared is the state of a run that rank 0 sends to the others.
type shared struct {
	Path    string             `json:"path,omitempty"` // of the checkpoint; empty: a new run
	State   checkpoint.State   `json:"state"`
	History checkpoint.History `json:"history,omitempty"`
	Seconds checkpoint.Float   `json:"seconds"`
	// Optimizers is how many ranks the checkpoint has own states of.
	Optimizers int `json:"optimizers,omitempty"`
}

// Share gives all ranks the state of rank 0, which has resumed from a checkpoint that is still
// open, or begins (nil), and returns the update to start from. Without a group it does nothing.
func (j *Job) Share(from *checkpoint.Checkpoint) (start int64, err error) {
	s := shared{}
	if from != nil {
		s = shared{Path: from.Path, State: from.State, History: from.Metadata.History, Seconds: from.Metadata.Seconds}
		if from.Optimizer != nil {
			s.Optimizers = optimizersIn(j.Runner.Program(), from.Optimizer.Has)
		}
	}
	if j.Group == nil {
		return s.State.Update, nil
	}
	b, err := json.Marshal(s)
	if err != nil {
		return 0, err
	}
	if b, err = dist.BroadcastSized(j.Group, 0, b); err != nil {
		return 0, err
	}
	if !j.leads() {
		if err := json.Unmarshal(b, &s); err != nil {
			return 0, fmt.Errorf("the state of rank 0: %w", err)
		}
		if s.Path != "" {
			c := &checkpoint.Checkpoint{Path: s.Path, State: s.State}
			c.Metadata.History, c.Metadata.Seconds = s.History, s.Seconds
			if _, err := j.Restore(c); err != nil {
				return 0, err
			}
		}
	}
	p := j.Runner.Program()
	for _, st := range p.States {
		if st.Role == graph.Transient || st.Role == graph.Reference || st.Role == graph.Rounded || st.Role == graph.Moment && p.Shards != nil {
			continue
		}
		if err := j.broadcast(st.Name); err != nil { // frozen ones too: only rank 0 has loaded them
			return 0, err
		}
	}
	if s.Path == "" {
		return s.State.Update, nil
	}
	return s.State.Update, j.hand(from, s.Optimizers)
}
