package cloudbase

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// Synthetic is the section "synthetic": computed flights, whose cloud base is known. An aircraft flies
// straight and level. Its camera looks down on a broken layer of cloud at the height to be predicted, on the
// layer's shadows, and on the surface below.
//
//   - Parallax: the nearer the layer, the faster it passes by: Speed*Interval/(Altitude-base) in units of
//     the image's tangent, while the surface always moves by Speed*Interval/Altitude.
//   - Size: the same cells look larger on a higher layer.
//   - Shadows are base*tan(zenith angle) away from the clouds, opposite the sun.
//   - Light: the brightness follows the cosine of the zenith angle, and slopes that face the sun are
//     brighter.
//   - Noise: in each pixel, and in a gain and an offset that differ from flight to flight.
//
// This is not radiative transfer: the layer is flat and thin, so its base is what is seen from above, and a
// model trained on it knows nothing about real clouds.
type Synthetic struct {
	Flights     int     `key:"flights" min:"1" of:"flights" help:"number of flights, called flight-01 and so on, each with its own cells, cover, sun, surface and exposure"`
	Bursts      int     `key:"bursts" min:"1" of:"flights" help:"bursts of frames per flight, each over another scene"`
	BurstFrames int     `key:"burst_frames" min:"1" of:"frames" help:"frames per burst"`
	Interval    float64 `key:"interval" above:"0" help:"seconds between frames of a burst"`
	Pause       float64 `key:"pause" above:"0" help:"seconds between bursts"`
	Altitude    float64 `key:"altitude" above:"0" help:"altitude of the aircraft, km"`
	Speed       float64 `key:"speed" above:"0" help:"speed of the aircraft, m/s"`
	FieldOfView float64 `key:"field_of_view" above:"0" below:"180" help:"horizontal field of view, degrees"`
	BaseMin     float64 `key:"base_min" min:"0" help:"lowest cloud base, km"`
	BaseMax     float64 `key:"base_max" above:"0" help:"highest cloud base, km"`
	Noise       float64 `key:"noise" min:"0" help:"standard deviation of a pixel's noise, on a scale of 0 to 1"`
	Seed        uint64  `key:"seed" of:"seed" help:"seed of the flights"`
}

// sky holds the properties that differ between flights.
type sky struct {
	cloud, ground           noise
	cell, clear, depth      float64 // m; threshold of the field; optical depth above it
	grain, albedo, relief   float64 // m; albedo and relief of the surface
	sza, saa, szaEnd, saaBy float64 // degrees: at the start, at the end, change of azimuth
	gain, offset            float64
	base                    noise
	mean, swing             float64 // km
}

func (s *Synthetic) sky(k int) sky {
	r := rand.New(rand.NewPCG(s.Seed, uint64(k)))
	within := func(low, high float64) float64 { return low + r.Float64()*(high-low) }
	span := s.BaseMax - s.BaseMin
	return sky{
		cloud: noise(r.Uint64()), ground: noise(r.Uint64()), base: noise(r.Uint64()),
		cell: within(300, 600), clear: within(0.36, 0.5), depth: within(12, 30),
		grain: within(120, 250), albedo: within(0.08, 0.2), relief: within(0.05, 0.15),
		sza: within(15, 55), szaEnd: within(15, 55), saa: within(0, 360), saaBy: within(-40, 40),
		gain: within(0.8, 1.1), offset: within(0, 0.08),
		mean: s.BaseMin + span*within(0.35, 0.65), swing: span * within(0.7, 1.1),
	}
}

// flight returns flight k, counted from 0, with images of height x width.
func (s *Synthetic) flight(k, height, width int) *flight {
	y := s.sky(k)
	f := &flight{Name: fmt.Sprintf("flight-%02d", k+1), Height: height, Width: width, pixels: pixelU16}
	n := s.Bursts * s.BurstFrames
	for i := range n {
		burst, step := i/s.BurstFrames, i%s.BurstFrames
		at := float64(burst)*(s.Pause+float64(s.BurstFrames)*s.Interval) + float64(step)*s.Interval
		f.Time = append(f.Time, at)
		done := float64(i) / float64(n)
		f.SZA = append(f.SZA, lerp(y.sza, y.szaEnd, done))
		f.SAA = append(f.SAA, math.Mod(y.saa+y.saaBy*done+360, 360))
		// The base drifts over several bursts, and is the same in the whole image.
		drift := y.mean + 2*y.swing*(y.base.at(at/(4*s.Pause), 0)-0.5)
		f.Base = append(f.Base, min(s.BaseMax, max(s.BaseMin, drift)))
	}
	f.frame = func(i int, dst []float32) error {
		s.draw(&y, f, i, rand.New(rand.NewPCG(s.Seed^uint64(k+1)<<32, uint64(i))), dst)
		return nil
	}
	return f
}

// draw writes image i. Row 0 is ahead, column 0 to the left.
func (s *Synthetic) draw(y *sky, f *flight, i int, r *rand.Rand, dst []float32) {
	const km = 1000
	here := s.Speed * f.Time[i]
	pixel := 2 * math.Tan(s.FieldOfView*math.Pi/360) / float64(f.Width)
	near, far := (s.Altitude-f.Base[i])*km, s.Altitude*km
	sza, saa := f.SZA[i]*math.Pi/180, f.SAA[i]*math.Pi/180
	light := math.Cos(sza)
	sunAhead, sunRight := math.Cos(saa), math.Sin(saa)
	throw := f.Base[i] * km * math.Tan(sza)
	// thickness returns the thickness of the layer above a point, 0 where it is clear.
	thickness := func(cloud *walk, ahead, right float64) float64 {
		return max(0, cloud.at(ahead/y.cell, right/y.cell)-y.clear)
	}
	// The points seen, those towards the sun from them, those that shade the ground, and the ground.
	seen, sunward, shading, ground := walk{noise: y.cloud}, walk{noise: y.cloud}, walk{noise: y.cloud}, walk{noise: y.ground}
	for row := range f.Height {
		ahead := (float64(f.Height-1)/2 - float64(row)) * pixel
		for col := range f.Width {
			right := (float64(col) - float64(f.Width-1)/2) * pixel
			ca, cr := here+ahead*near, right*near
			ga, gr := here+ahead*far, right*far
			t := thickness(&seen, ca, cr)
			opacity := 1 - math.Exp(-y.depth*t)
			slope := 0.0
			if t > 0 {
				const step = 40 // m
				slope = t - thickness(&sunward, ca+step*sunAhead, cr+step*sunRight)
			}
			cloud := light * (0.75 + 1.5*slope)
			shade := math.Exp(-y.depth * thickness(&shading, ga+throw*sunAhead, gr+throw*sunRight))
			surface := light * (y.albedo + y.relief*(ground.at(ga/y.grain, gr/y.grain)-0.5)) * (0.35 + 0.65*shade)
			v := y.offset + y.gain*lerp(surface, cloud, opacity) + s.Noise*r.NormFloat64()
			dst[row*f.Width+col] = float32(min(1, max(0, v)))
		}
	}
}
