package train

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/snug-ml/snug/data/safetensors"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/train/checkpoint"
)

// A checkpoint holds whole tensors, whichever ranks have their parts, and all optimizers if each
// rank has its own. Then, or if ranks share the optimizer, rank 0 asks the others for their states
// piece by piece while it writes, and they listen until it says what comes next. Until then all
// wait.

// request is what rank 0 wants from all others.
type request struct {
	End    ending // if Bytes is 0: what comes next
	Rank   int    // which rank has it
	Moment int    // the index of a moment among those of that rank
	From   int64
	Bytes  int64
}

const requestBytes = 5 * 8

func (q request) encode() []byte {
	b := make([]byte, 0, requestBytes)
	for _, x := range []int64{int64(q.End), int64(q.Rank), int64(q.Moment), q.From, q.Bytes} {
		b = binary.LittleEndian.AppendUint64(b, uint64(x))
	}
	return b
}

func decodeRequest(b []byte) request {
	at := func(i int) int64 { return int64(binary.LittleEndian.Uint64(b[8*i:])) }
	return request{ending(at(0)), int(at(1)), int(at(2)), at(3), at(4)}
}

// fetch gets what another rank has, into dst on rank 0.
func (r *ranks) fetch(q request, dst []byte) error {
	if err := r.Broadcast(0, q.encode()); err != nil {
		return err
	}
	send, recv := make([][]byte, r.World()), make([][]byte, r.World())
	recv[q.Rank] = dst
	return r.AllToAll(send, recv)
}

// listen sends rank 0 what it asks for until it says what comes next.
func (r *ranks) listen(x *engine.Executable) (ending, error) {
	var room []byte
	for {
		b := make([]byte, requestBytes)
		if err := r.Broadcast(0, b); err != nil {
			return 0, err
		}
		q := decodeRequest(b)
		if q.Bytes == 0 {
			return q.End, nil
		}
		send, recv := make([][]byte, r.World()), make([][]byte, r.World())
		if q.Rank == r.Rank() {
			s := statesOf(x.Program(), q.Rank)[q.Moment]
			room = slices.Grow(room[:0], int(q.Bytes))[:q.Bytes]
			if err := x.Peek(s.Name, q.From, room); err != nil {
				return 0, err
			}
			send[0] = room
		}
		if err := r.AllToAll(send, recv); err != nil {
			return 0, err
		}
	}
}

// statesOf returns the states that a rank has and others do not.
func statesOf(p *engine.Program, rank int) []*graph.State {
	if p.Shards != nil {
		return p.Shards.Moments[rank]
	}
	return own(p)
}

// agree makes all ranks take the ending that rank 0 decided on, after rank 0 got what it
// asked for.
func (j *Job) agree(u int64, d *decision) (err error) {
	switch {
	case j.ranks == nil || !j.together(u):
		return nil
	case j.leads():
		return j.ranks.Broadcast(0, request{End: d.end}.encode())
	}
	d.end, err = j.ranks.listen(j.Runner)
	return err
}

// owned is what a rank has of a moment: a range of bytes of the whole.
type owned struct {
	rank, index int
	from, bytes int64
}

// gathered is the states that a checkpoint holds if ranks share the optimizer, or each has its own:
// the [checkpoint.Live] of rank 0, which the others serve until it is closed.
type gathered struct {
	ranks   *ranks
	x       *engine.Executable
	moments map[string][]owned // by the name in the checkpoint

	mu     sync.Mutex
	closed bool
	err    error // of the group: the run cannot go on
	before func(names []string) error
}

func (r *ranks) gather(x *engine.Executable) *gathered {
	g := &gathered{ranks: r, x: x, moments: map[string][]owned{}}
	p := x.Program()
	if p.Shards == nil {
		for rank := 1; rank < r.World(); rank++ {
			for i, s := range own(p) {
				g.moments[ofRank(rank, s.Name)] = []owned{{rank, i, 0, s.Type.Bytes()}}
			}
		}
		return g
	}
	for rank, list := range p.Shards.Moments {
		for i, s := range list {
			g.moments[s.Name] = append(g.moments[s.Name], owned{rank, i, s.From * s.Type.DType.Size(), s.Type.Bytes()})
		}
	}
	return g
}

// Guard implements [checkpoint.Live].
func (g *gathered) Guard(before func(names []string) error) {
	g.before = before
	g.x.Guard(before)
}

// Peek implements [checkpoint.Live].
func (g *gathered) Peek(name string, from int64, dst []byte) error {
	parts, ok := g.moments[name]
	if !ok {
		return g.x.Peek(name, from, dst)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return fmt.Errorf("the other ranks have gone on training: their part of %s is gone", name)
	}
	for _, o := range parts {
		a, b := max(from, o.from), min(from+int64(len(dst)), o.from+o.bytes)
		if a >= b {
			continue
		}
		part, at := dst[a-from:b-from], a-o.from
		var err error
		if o.rank == g.ranks.Rank() {
			err = g.x.Peek(name, at, part)
		} else if err = g.ranks.fetch(request{Rank: o.rank, Moment: o.index, From: at, Bytes: b - a}, part); err != nil {
			g.err, g.closed = err, true
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// close ends the gathering, whether or not the save succeeded: another attempt is for
// another state.
func (g *gathered) close() error {
	g.mu.Lock()
	g.closed = true
	err := g.err
	g.mu.Unlock()
	if g.before != nil {
		for name := range g.moments { // to the store, they change now
			err = errors.Join(err, g.before([]string{name}))
		}
	}
	return err
}

// lost reports whether a rank is gone.
func (g *gathered) lost() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err != nil
}

// live returns the states of the job for a checkpoint.
func (j *Job) live() checkpoint.Live {
	if j.gathers() {
		return j.ranks.gather(j.Runner)
	}
	return j.Runner
}

// gathers reports whether a checkpoint needs states that other ranks have.
func (j *Job) gathers() bool { return j.shared() || j.ranks != nil && j.outer() != nil }

// wholeMoments returns the tensors of the optimizer as they are when it is not shared.
func wholeMoments(p *engine.Program) (list []checkpoint.Tensor) {
	for _, s := range savedStates(p) {
		if optimizerState(s) {
			list = append(list, checkpoint.Tensor{Name: s.Name, DType: stored(s.Type.DType), Shape: s.Type.Shape})
		}
	}
	return list
}

// shared reports whether the job's ranks share the optimizer.
func (j *Job) shared() bool { return j.ranks != nil && j.Runner.Program().Shards != nil }

// handBytes is how much of a moment rank 0 sends to its owner at a time.
const handBytes = 4 << 20

// hand sends every rank the states that it has and others do not, from the checkpoint that rank 0 resumes
// from. If each rank has its own optimizer, the checkpoint has so many of them; further ranks get them
// again, from the first on.
func (j *Job) hand(from *checkpoint.Checkpoint, optimizers int) error {
	g, p := j.Group, j.Runner.Program()
	for rank := 1; rank < g.World(); rank++ { // rank 0 has loaded its own
		source := 0
		if p.Outer != nil {
			if source = rank % optimizers; source == 0 {
				continue // as all have them
			}
		}
		for _, s := range statesOf(p, rank) {
			var x safetensors.Tensor
			var data []byte
			if g.Rank() == 0 {
				var err error
				name := s.SavedName(from.Optimizer.Has)
				if source > 0 {
					name = ofRank(source, s.Name)
				}
				if x, err = from.Optimizer.Tensor(name); err == nil {
					data, err = savedPart(j.Runner.Program(), s, &x)
				}
				if err != nil {
					return fmt.Errorf("%s: %w", from.Path, err)
				}
			}
			width := s.Type.DType.Size()
			for at := int64(0); at < s.Type.Bytes(); at += handBytes {
				n := min(handBytes, s.Type.Bytes()-at)
				send, recv := make([][]byte, g.World()), make([][]byte, g.World())
				switch g.Rank() {
				case 0:
					send[rank] = data[at : at+n]
				case rank:
					recv[0] = make([]byte, n)
				}
				if err := g.AllToAll(send, recv); err != nil {
					return err
				}
				if g.Rank() == rank {
					own := j.Runner.Program().State(s.Name)
					if err := j.Runner.WritePart(engine.Part{State: own, From: at / width, Elems: n / width}, recv[0]); err != nil {
						return err
					}
				}
			}
			x.Release()
		}
	}
	return nil
}

// savedPart returns what a checkpoint's tensor has of a state: all of its bytes, or a part.
func savedPart(p *engine.Program, s *graph.State, x *safetensors.Tensor) ([]byte, error) {
	whole := s.Type
	if p.Shards != nil && s.Role == graph.Moment {
		i := slices.IndexFunc(p.Shards.Whole, func(w *graph.State) bool { return w.Name == s.Name })
		whole = p.Shards.Whole[i].Type
	}
	if int64(len(x.Data)) != whole.Bytes() || x.DType != stored(s.Type.DType) {
		return nil, fmt.Errorf("tensor %s is %v%v, this program has %v", s.Name, x.DType, x.Shape, whole)
	}
	return x.Data[s.From*s.Type.DType.Size():][:s.Type.Bytes()], nil
}
