package train

import (
	"encoding/binary"
	"math"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/simd"
)

// What ranks do that share the optimizer (engine.Sharding): each updates its parts of the
// weights from the sums of gradients that it owns, then all get all weights. The norm of
// all gradients is added up from sums of squares of chunks that do not depend on which
// rank has them, in the order of the processor's operation, so that the update has the
// same bits as one that is not shared.

// zero is what sharing the optimizer needs in addition to the exchange.
type zero struct {
	weights map[string]*graph.State // by the name of their gradient
	first   map[string]int          // index of a gradient's first chunk
	squares []float64               // of each chunk of the gradients, in order
	chunks  [][]int                 // those of each rank, in the order in which it sends them
	sent    [][]byte                // by rank
}

func newZero(s *engine.Shards) *zero {
	z := &zero{weights: map[string]*graph.State{}, first: map[string]int{}}
	n := 0
	for _, w := range s.Trained {
		name := engine.Gradient + w.Name
		z.weights[name], z.first[name] = w, n
		n += int((w.Type.Shape.Elems() + graph.NormChunk - 1) / graph.NormChunk)
	}
	z.squares = make([]float64, n)
	for _, parts := range s.Weights {
		var list []int
		for _, p := range parts {
			at := z.first[engine.Gradient+p.State.Name]
			for from := p.From; from < p.From+p.Elems; from += graph.NormChunk {
				list = append(list, at+int(from/graph.NormChunk))
			}
		}
		z.chunks, z.sent = append(z.chunks, list), append(z.sent, make([]byte, 8*len(list)))
	}
	return z
}

// keep writes the sums of a bucket to this rank's parts of the gradients, and sums their
// squares.
func (e *viaHost) keep(k *bucket) error {
	e.wire.pack(k.sum)
	e.wire.unpack(k.sum)
	z := e.zero
	return eachGradient(k.shards[e.g.Rank()], k.sum, func(p engine.Part, b []byte) error {
		err := e.write(p, b)
		for x, at := floats(b), z.first[p.State.Name]+int(p.From/graph.NormChunk); len(x) > 0; at++ {
			n := min(len(x), graph.NormChunk)
			z.squares[at] = simd.SumSqF64(x[:n])
			x = x[n:]
		}
		return err
	})
}

func (e *viaHost) norm() error {
	me, z := e.g.Rank(), e.zero
	for i, chunk := range z.chunks[me] {
		binary.LittleEndian.PutUint64(z.sent[me][8*i:], math.Float64bits(z.squares[chunk]))
	}
	if err := e.g.AllGather(z.sent); err != nil {
		return err
	}
	for r, list := range z.chunks {
		for i, chunk := range list {
			z.squares[chunk] = math.Float64frombits(binary.LittleEndian.Uint64(z.sent[r][8*i:]))
		}
	}
	sum := 0.0
	for _, x := range z.squares {
		sum += x
	}
	return e.x.SetFloats(engine.StateNorm, []float32{float32(math.Sqrt(sum))})
}

func (e *viaHost) spreadWeights() error {
	me := e.g.Rank()
	parts, of := make([][]byte, e.g.World()), make([][]engine.Part, e.g.World())
	for i := range e.buckets {
		k := &e.buckets[i]
		for r, shard := range k.shards {
			bytes := int64(0)
			of[r] = of[r][:0]
			for _, p := range shard {
				w := engine.Part{State: e.zero.weights[p.State.Name], From: p.From, Elems: p.Elems}
				of[r], bytes = append(of[r], w), bytes+p.Elems*w.State.Type.DType.Size()
			}
			parts[r] = e.shard(k, r)[:bytes]
		}
		if err := each(of[me], parts[me], e.x.ReadPart); err != nil {
			return err
		}
		if err := e.g.AllGather(parts); err != nil {
			return err
		}
		for r := range parts {
			if r == me {
				continue
			}
			if err := each(of[r], parts[r], e.x.WritePart); err != nil {
				return err
			}
		}
	}
	return nil
}
