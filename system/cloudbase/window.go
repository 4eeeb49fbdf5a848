package cloudbase

import (
	"fmt"
	"slices"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/internal/few"
	"github.com/snug-ml/snug/internal/size"
)

// window is an example: frames of one flight, from first to first+frames-1.
type window struct {
	flight *recording
	first  int
}

// middle returns the frame whose label and angles the window has.
func (w window) middle(frames int) int { return w.first + frames/2 }

// windows returns the windows of a flight: frames without a gap in time whose label, unless all is set, is
// within the configured range.
func windows(c *config.Config, r *recording, all bool) []window {
	m, d := config.Of[Model](c), config.Of[Data](c)
	gap := d.MaxGap
	if gap == 0 {
		gap = 2 * medianStep(r.Time)
	}
	var out []window
	run := 1 // number of frames up to here without a gap
	for i := range r.Time {
		if i > 0 && r.Time[i]-r.Time[i-1] > gap {
			run = 1
		} else if i > 0 {
			run++
		}
		if run < m.Frames {
			continue
		}
		w := window{r, i - m.Frames + 1}
		base := r.Base[w.middle(m.Frames)]
		if all || base >= max(0, d.BaseMin) && base <= d.BaseMax {
			out = append(out, w)
		}
	}
	return out
}

// medianStep returns the median time between frames, or 0 for a single frame.
func medianStep(times []float64) float64 {
	var steps []float64
	for i := 1; i < len(times); i++ {
		steps = append(steps, times[i]-times[i-1])
	}
	if len(steps) == 0 {
		return 0
	}
	slices.Sort(steps)
	return steps[len(steps)/2]
}

// sides holds the windows of a run. The last three may be empty.
type sides struct {
	train, valid, calibration, test []window
}

// divide splits the flights for the phase.
func divide(c *config.Config, s *store) (*sides, error) {
	m, sp, p := config.Of[Model](c), config.Of[Split](c), config.Of[Phases](c)
	for _, l := range []struct {
		key   string
		names []string
	}{
		{"split.validation", sp.Validation}, {"split.calibration", sp.Calibration}, {"split.test", sp.Test},
		{"phases.pretrain", []string{p.Pretrain}}, {"phases.leave_out", []string{p.LeaveOut}},
	} {
		for _, name := range l.names {
			if name != "" && !slices.ContainsFunc(s.Flights, func(r *recording) bool { return r.Name == name }) {
				return nil, fmt.Errorf("%s: there is no flight %q; there are %s", l.key, name, few.Of(s.names()))
			}
		}
	}
	out := &sides{}
	var found []window // to train on, whatever their labels
	for _, r := range s.Flights {
		all := windows(c, r, p.Run == "mae")
		switch {
		case slices.Contains(sp.Calibration, r.Name):
			out.calibration = append(out.calibration, all...)
		case slices.Contains(sp.Test, r.Name):
			out.test = append(out.test, all...)
		case p.Run == "pretrain" && r.Name == p.Pretrain:
			out.train, out.valid = inTime(all, m.Frames, c.Data.HeldOutFraction)
			found = windows(c, r, true)
		case p.Run == "pretrain":
		case p.Run == "fold" && r.Name == p.LeaveOut:
			out.valid = append(out.valid, all...)
		case p.Run != "fold" && slices.Contains(sp.Validation, r.Name):
			out.valid = append(out.valid, all...)
		default:
			out.train = append(out.train, all...)
			found = append(found, windows(c, r, true)...)
			if p.Run == "final" && r.Name == p.Pretrain {
				out.train = append(out.train, again(all, p.Overweight)...)
			}
		}
	}
	if len(out.train) == 0 {
		return nil, fmt.Errorf("nothing to train on: %w; flights are %s", nothing(c, found), few.Of(s.names()))
	}
	base := knownBases(out.train, m.Frames)
	if p.Run != "mae" && slices.Min(base) == slices.Max(base) {
		return nil, fmt.Errorf("the training windows all have the same cloud base (%s of %g km): there is nothing to learn from them; check the labels (cbh), or train on more flights (data.source, split)", size.Of(len(base), "window"), base[0])
	}
	return out, nil
}

// nothing says why none of the windows can be trained on.
func nothing(c *config.Config, list []window) error {
	m, d := config.Of[Model](c), config.Of[Data](c)
	base := knownBases(list, m.Frames)
	switch {
	case len(list) == 0:
		return fmt.Errorf("no flight outside the split has %d frames without a gap in time (model.frames, data.max_gap)", m.Frames)
	case len(base) == 0:
		return fmt.Errorf("no window of %d frames outside the split has a cloud base (cbh is missing, empty or NaN)", m.Frames)
	}
	return fmt.Errorf("no flight outside the split has a window of %d frames with a cloud base from %g to %g km (data.cbh_min, data.cbh_max): there are %g to %g, which are taken for km; convert meters to km, or change the limits",
		m.Frames, max(0, d.BaseMin), d.BaseMax, slices.Min(base), slices.Max(base))
}

// knownBases returns the known labels of windows, in km.
func knownBases(list []window, frames int) (km []float64) {
	for _, w := range list {
		if v := w.flight.Base[w.middle(frames)]; v != unknown {
			km = append(km, v)
		}
	}
	return km
}

func (s *store) names() (names []string) {
	for _, r := range s.Flights {
		names = append(names, r.Name)
	}
	return names
}

// inTime cuts a share off the end, and drops the windows before the cut that share frames with those after
// it.
func inTime(all []window, frames int, share float64) (train, valid []window) {
	at := len(all) - int(share*float64(len(all)))
	if at == len(all) {
		return all, nil
	}
	valid = all[at:]
	train = all[:at]
	for len(train) > 0 && train[len(train)-1].first+frames > valid[0].first {
		train = train[:len(train)-1]
	}
	return train, valid
}

// again returns extra windows, so that they occur factor times in total: each floor(factor) times, with the
// rest spread evenly.
func again(all []window, factor float64) (more []window) {
	whole := int(factor)
	for range whole - 1 {
		more = append(more, all...)
	}
	owed := 0.0
	for _, w := range all {
		if owed += factor - float64(whole); owed >= 1 {
			more = append(more, w)
			owed--
		}
	}
	return more
}
