package pass

import (
	"errors"

	"github.com/snug-ml/snug/engine/graph"
)

// Rival is another program that [RecomputeAuto] competes with. It relies on recomputation never making a program
// faster.
type Rival struct {
	// Spare is how many seconds a run may take longer than without recomputation without being slower.
	Spare float64
	// Slower returns by how many seconds a run of the function, as it is after order, is slower; negative if it is
	// faster.
	Slower func(f *graph.Func) float64
}

// ErrSlower means that everything that fits is slower than the rival.
var ErrSlower = errors.New("everything that fits is slower than its rival")

// compete returns [ErrSlower] if a sequence of moves that is slower than the rival does not fit: what fits is longer.
// It looks for the shortest such sequence by the seconds of the moves, and judges it by the rival's clock.
func (u *Unit) compete(moves []move) error {
	if u.Rival == nil {
		return nil
	}
	const tries = 3
	k, seconds, enough := 0, 0., u.Rival.Spare
	for range tries {
		for ; k < len(moves) && seconds <= enough; k++ {
			seconds += moves[k].seconds
		}
		if seconds <= enough {
			return nil
		}
		recipe := u.after(moves[:k])
		slower, err := u.slower(recipe)
		if err != nil {
			return err
		}
		if slower > 0 {
			if t, err := u.try(recipe); err != nil || t.most <= u.Budget {
				return err
			}
			return ErrSlower
		}
		// What was added took less time than its moves, and so will the rest.
		if took := u.Rival.Spare + slower; took > 0 {
			enough = seconds * u.Rival.Spare / took
		} else {
			enough = 2 * seconds
		}
	}
	return nil
}

// slower returns by how many seconds u with a recipe for each block is slower than its rival.
func (u *Unit) slower(recipe []Recompute) (float64, error) {
	f, _, err := u.made(recipe, u.fusion())
	if err != nil {
		return 0, err
	}
	if u.OffloadStates {
		f = withStatesAway(f)
	}
	v := Unit{F: f, Staging: u.Staging}
	if err := offloadStates(&v); err != nil {
		return 0, err
	}
	return u.Rival.Slower(v.F), nil
}
