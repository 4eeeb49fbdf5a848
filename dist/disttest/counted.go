// Package disttest provides groups for tests.
package disttest

import (
	"sync/atomic"

	"github.com/snug-ml/snug/dist"
)

// Counted is a group that counts the bytes that its rank sends to others.
type Counted struct {
	dist.Group
	// Scattered counts the bytes of AllToAll, Gathered those of AllGather.
	Scattered, Gathered *atomic.Int64
}

// AllToAll implements [dist.Group].
func (c Counted) AllToAll(send, recv [][]byte) error {
	for r, b := range send {
		if r != c.Rank() {
			c.Scattered.Add(int64(len(b)))
		}
	}
	return c.Group.AllToAll(send, recv)
}

// AllGather implements [dist.Group].
func (c Counted) AllGather(parts [][]byte) error {
	c.Gathered.Add(int64(len(parts[c.Rank()]) * (c.World() - 1)))
	return c.Group.AllGather(parts)
}
