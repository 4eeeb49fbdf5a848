package session

import (
	"errors"

	"github.com/snug-ml/snug/engine/pass"
	"github.com/snug-ml/snug/engine/plan"
	"github.com/snug-ml/snug/system"
)

// Extent is how large a setting can be on a target, with the other settings unchanged and every block
// recomputed.
type Extent struct {
	Key string `json:"key"`
	// Largest is the largest value that fits; 0 if not even the smallest does. It counts units if Unit is
	// set.
	Largest int    `json:"largest"`
	Unit    string `json:"unit,omitempty"`
	// Of names the thing that Largest applies to.
	Of string `json:"of,omitempty"`
	// Most is the largest value that the model accepts; 0 if there is no limit.
	Most  int   `json:"most,omitempty"`
	Total int64 `json:"planned_total_bytes,omitempty"` // at the largest
}

// batchKey is the extent that every system with extents reports.
const batchKey = "training.batch_size"

// mostBatch is the largest batch that is tried.
const mostBatch = 1 << 16

// Extents returns how large settings can be on a target, in the precision of its plan.
func (s *Setup) Extents(t plan.Target, of plan.Settings) ([]Extent, error) {
	if s.System.Extents == nil {
		return nil, nil
	}
	of.Recompute, of.Budget, of.Slices = pass.RecomputeFull, 0, 0
	var list []Extent
	for _, e := range s.System.Extents(s.Config) {
		x, err := s.extent(e, t, of)
		if err != nil {
			return nil, err
		}
		list = append(list, x)
	}
	pl := s.Planner(t)
	x, err := largest(Extent{Key: batchKey}, 1, mostBatch, func(n int) (*plan.Report, error) {
		of.MicroBatch = n
		return pl.Plan(of)
	})
	return append(list, x), err
}

// extent returns how large one setting of the system can be.
func (s *Setup) extent(e system.Extent, t plan.Target, of plan.Settings) (Extent, error) {
	x, err := largest(Extent{Key: e.Key, Most: e.Most}, e.Step, e.Most, func(n int) (*plan.Report, error) {
		m, err := e.Model(n)
		if err != nil {
			return nil, err
		}
		return s.as(m).Planner(t).Plan(of)
	})
	if e.Size != nil && x.Largest > 0 {
		x.Largest, x.Unit, x.Of = e.Size(x.Largest)
	}
	return x, err
}

// as returns the setup with another model.
func (s *Setup) as(m *system.Model) *Setup {
	own := *s
	own.Model = m
	return &own
}

// largest finds the largest multiple of step that fits, or most itself if that fits. Memory grows with the
// setting, and mostly in proportion, so a straight line through the last two plans tells what to plan next.
func largest(x Extent, step, most int, plans func(n int) (*plan.Report, error)) (Extent, error) {
	value := func(k int) int { return min(k*step, most) }
	type point struct {
		k     int
		total float64
	}
	var line []point // the plans so far
	capacity := 0.0
	try := func(k int) (bool, error) {
		r, err := plans(value(k))
		var hopeless *plan.Hopeless
		if errors.As(err, &hopeless) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		line, capacity = append(line, point{k, float64(r.Total)}), float64(r.Capacity)
		if r.Fits {
			x.Largest, x.Total = value(k), r.Total
		}
		return r.Fits, nil
	}
	end := (most + step - 1) / step
	fits, fails := 0, end+1
	for next, tries := 1, 1; fails-fits > 1; tries++ {
		ok, err := try(next)
		if err != nil {
			return x, err
		}
		if ok {
			fits = next
		} else {
			fails = next
		}
		next = min(8*max(fits, 1), end) // until there are two points, or if the line does not rise
		if n := len(line); n > 1 {
			if a, b := line[n-2], line[n-1]; (b.total > a.total) == (b.k > a.k) && b.total != a.total {
				k := float64(b.k) + (capacity-b.total)*float64(b.k-a.k)/(b.total-a.total)
				next = int(min(max(k, 0), float64(end)))
			}
		}
		if tries > 4 && tries%2 == 0 { // bisects in case the points do not lie on a line
			next = (fits + fails) / 2
		}
		next = min(max(next, fits+1), fails-1)
	}
	return x, nil
}

// smaller adds to a refusal the changes that the system offers. If one of them costs the least time, it
// becomes the smallest change.
func (s *Setup) smaller(no *plan.DoesNotFit, t plan.Target, c plan.Settings) error {
	if s.System.Smaller == nil {
		return nil
	}
	asked := no.Report
	changes, found := s.System.Smaller(s.Config), false
	for i, change := range changes {
		m, err := change.Model()
		if err != nil {
			return err
		}
		pl := s.as(m).Planner(t)
		r, err := pl.Plan(c)
		if err != nil {
			return err
		}
		x := plan.NewRung(change.Settings, r.Run.Settings, r).Over(asked)
		no.Ladder = append(no.Ladder, x)
		if r.Fits {
			if !found && (no.Smallest == nil || x.Cost < no.Smallest.Cost) {
				no.Smallest = &x
			}
			found = true // the others are only listed in the ladder
		}
		if i < len(changes)-1 || no.Smallest != nil {
			continue
		}
		// No change is enough alone: try the last one together with the planner's smallest.
		var less *plan.DoesNotFit
		if _, err := pl.Check(c); !errors.As(err, &less) {
			return err
		}
		if less.Smallest != nil {
			y := *less.Smallest
			y.Change = change.Settings + ", " + y.Change
			y = y.Over(asked)
			no.Ladder, no.Smallest = append(no.Ladder, y), &y
		}
	}
	return nil
}
