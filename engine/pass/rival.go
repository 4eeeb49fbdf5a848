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
	pace, err := u.pace()
	if err != nil {
		return err
	}
	const tries = 3
	k, seconds, enough := 0, 0., u.Rival.Spare*pace
	for range tries {
		for ; k < len(moves) && seconds <= enough; k++ {
			seconds += moves[k].seconds
		}
		if seconds <= enough {
			return nil
		}
		recipe := u.after(moves[:k])
		m, err := u.made(recipe)
		if err != nil {
			return err
		}
		slower, err := u.slower(m.f)
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

// pace returns by which factor recomputation is faster than the seconds of its operations add up to, as seen with the
// same recipe for all blocks; 1 if there is none to look at.
func (u *Unit) pace() (float64, error) {
	for _, r := range []Recompute{RecomputeWide, RecomputeSelective, RecomputeActivation} {
		a := u.arrangedBy(arrangement{r, 0, u.fusion()})
		if a == nil {
			continue
		}
		slower, err := u.slower(a.f)
		if err != nil {
			return 0, err
		}
		if took := u.Rival.Spare + slower; took > 0 {
			seconds, _ := worth(u, dropped(u.F, u.everywhere(r)))
			var sum float64
			for _, s := range seconds {
				sum += s
			}
			return max(1, sum/took), nil
		}
	}
	return 1, nil
}

// slower returns by how many seconds a function, as it is after order, is slower than its rival.
func (u *Unit) slower(f *graph.Func) (float64, error) {
	if u.OffloadStates {
		f = withStatesAway(f)
	}
	v := Unit{F: f, Staging: u.Staging}
	if err := offloadStates(&v); err != nil {
		return 0, err
	}
	return u.Rival.Slower(v.F), nil
}
