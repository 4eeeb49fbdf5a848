package pack

import "fmt"

// gpt describes one training step of a GPT-like model, to make the live intervals of its activations.
type gpt struct {
	layers, batch, time, width, vocab, heads int
	recompute                                recompute
	ceChunks                                 int // pieces of the vocabulary; 1: all logits at once
}

type recompute int

const (
	keepAll   recompute = iota
	selective           // normalized inputs and the GELU's output are recomputed
	full                // a block keeps only its input
)

func (g gpt) String() string {
	return fmt.Sprintf("L%d B%d T%d D%d V%d H%d recompute%d ce%d",
		g.layers, g.batch, g.time, g.width, g.vocab, g.heads, g.recompute, g.ceChunks)
}

// tape records allocations while a schedule is walked through.
type tape struct {
	bufs []Buffer
	now  int32
}

func (t *tape) tick() { t.now++ }

func (t *tape) alloc(size int) int {
	t.bufs = append(t.bufs, Buffer{Size: int64(size), Start: t.now, End: -1})
	return len(t.bufs) - 1
}

// free ends the buffers after the current position.
func (t *tape) free(ids ...int) {
	for _, i := range ids {
		if t.bufs[i].End < 0 {
			t.bufs[i].End = t.now + 1
		}
	}
}

// block is what the forward half of a block leaves for the backward half.
type block struct{ norm1, stats1, qkv, attention, lse, mid, norm2, stats2, fc, gelu, out int }

func (t *tape) forward(g gpt) block {
	half := g.batch * g.time * g.width * 2
	stat := g.batch * g.time * 4
	var b block
	b.norm1, b.stats1 = t.alloc(half), t.alloc(2*stat)
	t.tick()
	b.qkv = t.alloc(3 * half)
	t.tick()
	b.attention, b.lse = t.alloc(half), t.alloc(stat*g.heads)
	t.tick()
	projected := t.alloc(half)
	t.tick()
	b.mid = t.alloc(half)
	t.free(projected)
	t.tick()
	b.norm2, b.stats2 = t.alloc(half), t.alloc(2*stat)
	t.tick()
	b.fc = t.alloc(4 * half)
	t.tick()
	b.gelu = t.alloc(4 * half)
	t.tick()
	down := t.alloc(half)
	t.tick()
	b.out = t.alloc(half)
	t.free(down)
	t.tick()
	return b
}

// trace walks through forward, loss and backward; the gradient of a weight is outside the arena.
func (g gpt) trace() []Buffer {
	half := g.batch * g.time * g.width * 2
	t := &tape{}
	blocks := make([]block, g.layers)
	x := t.alloc(half)
	t.tick()
	for l := range blocks {
		b := t.forward(g)
		switch g.recompute {
		case keepAll:
		case selective:
			t.free(b.norm1, b.norm2, b.gelu)
		case full:
			t.free(b.norm1, b.stats1, b.qkv, b.attention, b.lse, b.mid, b.norm2, b.stats2, b.fc, b.gelu)
		}
		blocks[l] = b
	}
	final := t.alloc(half)
	t.tick()
	dy := t.alloc(half)
	logits := g.batch * g.time * g.vocab * 2
	for range g.ceChunks {
		chunk := t.alloc(logits / g.ceChunks)
		t.tick()
		t.tick()
		t.free(chunk)
		t.tick()
	}
	dx := t.alloc(half)
	t.free(dy, final)
	t.tick()
	for l := len(blocks) - 1; l >= 0; l-- {
		b := blocks[l]
		if g.recompute == full {
			out := b.out
			b = t.forward(g)
			t.free(b.out)
			b.out = out
		}
		if g.recompute == selective {
			b.gelu, b.norm2 = t.alloc(4*half), t.alloc(half)
			t.tick()
		}
		dgelu := t.alloc(4 * half)
		t.free(b.gelu)
		t.tick()
		dfc := t.alloc(4 * half)
		t.free(dgelu, b.fc)
		t.tick()
		dnorm2 := t.alloc(half)
		t.free(dfc, b.norm2)
		t.tick()
		dmid := t.alloc(half)
		t.free(dnorm2, b.stats2, dx)
		t.tick()
		dattention := t.alloc(half)
		t.tick()
		dqkv := t.alloc(3 * half)
		t.free(dattention, b.qkv, b.attention, b.lse)
		if g.recompute == selective {
			b.norm1 = t.alloc(half)
		}
		t.tick()
		dnorm1 := t.alloc(half)
		t.free(dqkv, b.norm1)
		t.tick()
		dx = t.alloc(half)
		t.free(dnorm1, dmid, b.stats1, b.mid, b.out)
		t.tick()
	}
	t.free(dx, x)
	return t.bufs
}
