package cloudbase

import (
	"math"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
)

// These states hold the scales of the training flights. As buffers of the program they are in every
// checkpoint, together with the weights that they belong to.
const (
	stateBase   = "scaler.cbh"    // F32 [2]: mean and deviation, km
	stateAngles = "scaler.angles" // F32 [4]: means of sza and saa, then their deviations, in degrees
)

// scaler converts between physical units and those of the network.
type scaler struct {
	Base   moments    `json:"cbh"`
	Angles [2]moments `json:"angles"`
}

// moments are a mean and a standard deviation.
type moments struct {
	Mean float64 `json:"mean"`
	Std  float64 `json:"std"`
}

// fitScaler computes the scales of windows.
func fitScaler(list []window, frames int) scaler {
	var sza, saa []float64
	for _, w := range list {
		i, r := w.middle(frames), w.flight
		sza, saa = append(sza, r.SZA[i]), append(saa, r.SAA[i])
	}
	return scaler{momentsOf(knownBases(list, frames)).scale(), [2]moments{momentsOf(sza).scale(), momentsOf(saa).scale()}}
}

// scale returns the moments to scale by: a deviation of 0 becomes 1, which scales nothing.
func (m moments) scale() moments {
	if m.Std < 1e-9 {
		m.Std = 1
	}
	return m
}

// momentsOf returns the moments of values, which are 0 if there are none.
func momentsOf(values []float64) (m moments) {
	for _, v := range values {
		m.Mean += v / float64(len(values))
	}
	for _, v := range values {
		m.Std += (v - m.Mean) * (v - m.Mean) / float64(len(values))
	}
	m.Std = math.Sqrt(m.Std)
	return m
}

// set writes the scales to the states of a loaded program that has them.
func (s scaler) set(r *engine.Executable) error {
	a := s.Angles
	for name, scales := range map[string][]float32{
		stateBase:   {float32(s.Base.Mean), float32(s.Base.Std)},
		stateAngles: {float32(a[0].Mean), float32(a[1].Mean), float32(a[0].Std), float32(a[1].Std)},
	} {
		if r.Program().State(name) == nil {
			continue
		}
		if err := r.SetFloats(name, scales); err != nil {
			return err
		}
	}
	return nil
}

// scalesOf returns the scales of a loaded program, which come from the checkpoint if one was loaded.
func scalesOf(r *engine.Executable) (scaler, error) {
	s := scaler{Base: moments{0, 1}, Angles: [2]moments{{0, 1}, {0, 1}}}
	if r.Program().State(stateBase) != nil {
		t, err := r.State(stateBase)
		if err != nil {
			return s, err
		}
		x := t.F32()
		s.Base = moments{float64(x[0]), float64(x[1])}
	}
	if r.Program().State(stateAngles) != nil {
		t, err := r.State(stateAngles)
		if err != nil {
			return s, err
		}
		x := t.F32()
		s.Angles = [2]moments{{float64(x[0]), float64(x[2])}, {float64(x[1]), float64(x[3])}}
	}
	return s, nil
}

// scaleState declares a state whose first count elements are means, followed by as many deviations.
func (n *net) scaleState(b *graph.Builder, name string, count int) (mean, std *graph.Value) {
	v := b.State(&graph.State{Name: name, Type: graph.T(graph.F32, 2*count), Role: n.role("scaler"), Init: graph.Ones()})
	return b.Slice(v, 0, 0, count), b.Slice(v, 0, count, count)
}
