package disttest

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/snug-ml/snug/dist"
)

// Ranks runs each rank's part in a group over TCP within this process. Each rank leaves the group
// with its part's error. Ranks returns the errors by rank.
func Ranks(t testing.TB, world int, part func(g dist.Watched) error) []error {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	errs := make([]error, world)
	var all sync.WaitGroup
	for r := range world {
		o := dist.Options{Rank: r, World: world, Address: l.Addr().String(), Token: "secret", Meet: time.Minute}
		if r == 0 {
			o.Listener = l
		}
		all.Go(func() {
			g, err := dist.Open(context.Background(), o)
			if err != nil {
				errs[r] = err
				return
			}
			err = part(g.(dist.Watched))
			errs[r] = errors.Join(err, g.Leave(err))
		})
	}
	all.Wait()
	return errs
}
