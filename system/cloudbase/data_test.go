package cloudbase

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/data/npz/npztest"
)

// TestWindowEdges: no window extends over the end of a flight or a gap, and every stretch without a gap has
// all of its windows.
func TestWindowEdges(t *testing.T) {
	c := configure(t, "model.frames", "3")
	r := &recording{Name: "a", Time: []float64{0, 1, 2, 3, 10, 11, 12, 12.5, 40, 41}}
	for range r.Time {
		r.Base = append(r.Base, 1)
	}
	first := func(list []window) (out []int) {
		for _, w := range list {
			out = append(out, w.first)
		}
		return out
	}
	// The stretches have 4, 4 and 2 frames.
	if got, want := first(windows(c, r, false)), []int{0, 1, 4, 5}; !slices.Equal(got, want) {
		t.Errorf("windows begin at %v, want %v", got, want)
	}
	// Windows with labels that are unknown or out of range are left out, unless all are requested.
	r.Base[1], r.Base[5] = unknown, 2.5
	if got, want := first(windows(c, r, false)), []int{1, 5}; !slices.Equal(got, want) {
		t.Errorf("labeled windows begin at %v, want %v", got, want)
	}
	if got, want := first(windows(c, r, true)), []int{0, 1, 4, 5}; !slices.Equal(got, want) {
		t.Errorf("all windows begin at %v, want %v", got, want)
	}
	if got := first(windows(configure(t, "model.frames", "3", "data.max_gap", "100"), r, true)); len(got) != len(r.Time)-2 {
		t.Errorf("with gaps allowed %d windows, want %d", len(got), len(r.Time)-2)
	}
	// The last window ends with the flight.
	s := stored(t, configure(t))
	for _, f := range s.Flights {
		for _, w := range windows(c, f, true) {
			if w.first < 0 || w.first+3 > len(f.Time) || f.Time[w.first+2]-f.Time[w.first] > 1.01 {
				t.Errorf("window %d of %s reaches over a gap", w.first, f.Name)
			}
		}
	}
}

// TestSides: every flight is on one side, in every phase.
func TestSides(t *testing.T) {
	settings := []string{"split.validation", "flight-02", "split.test", "flight-03", "phases.pretrain_flight", "flight-01"}
	for _, run := range []string{"final", "pretrain", "fold", "mae"} {
		c := configure(t, append(slices.Clone(settings), "phases.run", run, "phases.leave_out", "flight-04", "data.held_out_fraction", "0.4")...)
		s := stored(t, c)
		d, err := divide(c, s)
		if err != nil {
			t.Fatal(err)
		}
		used := map[*recording]map[int]string{}
		owner := map[string]string{}
		for side, list := range map[string][]window{"train": d.train, "validation": d.valid, "calibration": d.calibration, "test": d.test} {
			for _, w := range list {
				if was, ok := owner[w.flight.Name]; ok && was != side && run != "pretrain" {
					t.Errorf("%s: flight %s is on the sides %s and %s", run, w.flight.Name, was, side)
				}
				owner[w.flight.Name] = side
				if used[w.flight] == nil {
					used[w.flight] = map[int]string{}
				}
				for k := w.first; k < w.first+3; k++ {
					if was, ok := used[w.flight][k]; ok && was != side {
						t.Errorf("%s: frame %d of %s is on the sides %s and %s", run, k, w.flight.Name, was, side)
					}
					used[w.flight][k] = side
				}
			}
		}
		want := map[string]string{
			"final":    "map[flight-01:train flight-02:validation flight-03:test flight-04:train]",
			"mae":      "map[flight-01:train flight-02:validation flight-03:test flight-04:train]",
			"fold":     "map[flight-01:train flight-02:train flight-03:test flight-04:validation]",
			"pretrain": "flight-01 alone",
		}[run]
		if run == "pretrain" {
			if len(d.train) == 0 || len(d.valid) == 0 || d.train[0].flight.Name != "flight-01" || d.valid[0].flight.Name != "flight-01" || len(flightNames(d.train)) != 1 {
				t.Errorf("pretrain: %v and %v", flightNames(d.train), flightNames(d.valid))
			}
			if last := d.train[len(d.train)-1]; last.first >= d.valid[0].first {
				t.Errorf("pretrain: validation begins at frame %d, training goes on to %d", d.valid[0].first, last.first)
			}
			continue
		}
		if got := mapString(owner); got != want {
			t.Errorf("%s: %s, want %s", run, got, want)
		}
	}
	_, err := divide(configure(t, "split.test", "flight-9"), stored(t, configure(t)))
	refused(t, "a flight that is not there", err, "flight-9", "flight-01")
	// Labels that nothing can be learned from.
	for name, x := range map[string]struct {
		label func(v float64) float64
		want  []string
	}{
		"meters":   {func(v float64) float64 { return 1000 * (v + 3) }, []string{"nothing to train on", "window of 3 frames with a cloud base from 0 to ", " km (data.cbh_min, data.cbh_max): there are 3", "taken for km; convert meters"}},
		"negative": {func(v float64) float64 { return -v - 2 }, []string{"with a cloud base from 0 to ", "there are -"}},
		"unknown":  {func(float64) float64 { return unknown }, []string{"no window of 3 frames outside the split has a cloud base (cbh is missing, empty or NaN)"}},
		"constant": {func(float64) float64 { return 0.75 }, []string{"the training windows all have the same cloud base", "of 0.75 km", "check the labels (cbh)"}},
	} {
		s := stored(t, configure(t))
		for _, r := range s.Flights {
			for i, v := range r.Base {
				r.Base[i] = x.label(v)
			}
		}
		_, err := divide(configure(t), s)
		refused(t, name, err, x.want...)
		if _, err := divide(configure(t, "phases.run", "mae"), s); err != nil {
			t.Errorf("masked images need no labels: %v", err)
		}
	}
	_, err = divide(configure(t, "data.max_gap", "0.001"), stored(t, configure(t)))
	refused(t, "few frames", err, "no flight outside the split has 3 frames without a gap in time (model.frames, data.max_gap)", "flight-01")
}

func mapString(m map[string]string) string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	s := "map["
	for i, k := range keys {
		if i > 0 {
			s += " "
		}
		s += k + ":" + m[k]
	}
	return s + "]"
}

// TestScaler: the scales depend only on the training flights.
func TestScaler(t *testing.T) {
	c := configure(t, "split.validation", "flight-02")
	s := stored(t, c)
	scales := func() scaler {
		d, err := divide(c, s)
		if err != nil {
			t.Fatal(err)
		}
		return fitScaler(d.train, 3)
	}
	before := scales()
	var sum, n float64
	for _, r := range s.Flights {
		for _, w := range windows(c, r, false) {
			if r.Name != "flight-02" {
				sum, n = sum+r.Base[w.middle(3)], n+1
			}
		}
	}
	near(t, "mean of the labels", before.Base.Mean, sum/n, 1e-12)
	for _, r := range s.Flights {
		if r.Name == "flight-02" {
			for i := range r.Base {
				r.Base[i], r.SZA[i], r.SAA[i] = 0.01, 80, 10
			}
		}
	}
	if m := momentsOf([]float64{0.5, 0.5}); m.Std != 0 || m.scale().Std != 1 {
		t.Errorf("a constant spreads by %v and is scaled by %v", m.Std, m.scale().Std)
	}
	if after := scales(); after != before {
		t.Errorf("the validation flight moved the scales from %+v to %+v", before, after)
	}
}

// TestOversampling: windows are repeated as often as configured, evenly.
func TestOversampling(t *testing.T) {
	list := make([]window, 10)
	for i := range list {
		list[i].first = i
	}
	for _, factor := range []float64{1, 1.5, 2, 3.5} {
		times := map[int]int{}
		for _, w := range append(slices.Clone(list), again(list, factor)...) {
			times[w.first]++
		}
		total := 0
		for i := range list {
			total += times[i]
			if n := float64(times[i]); n < math.Floor(factor) || n > math.Ceil(factor) {
				t.Errorf("factor %v: window %d comes %v times", factor, i, n)
			}
		}
		near(t, "windows in all", float64(total), 10*factor, 0.5)
	}
}

// TestFeed: an epoch has every window once, and the next epoch has another order. What is read depends only
// on the position in the stream, however many workers read, and a cursor continues it.
func TestFeed(t *testing.T) {
	c := configure(t, "augment.flip", "0.5", "augment.noise", "0.1", "augment.erase", "0.5", "augment.brightness", "0.2", "augment.contrast", "0.2")
	s := stored(t, c)
	d, err := divide(c, s)
	if err != nil {
		t.Fatal(err)
	}
	f := newDataLoader(c, d.train, 4, 2, "")
	n := int64(len(d.train))
	var orders [2][]int64
	for epoch := range int64(2) {
		for k := range n {
			e := f.at(epoch*n + k)
			if e.epoch != epoch {
				t.Fatalf("example %d is of epoch %d", epoch*n+k, e.epoch)
			}
			orders[epoch] = append(orders[epoch], e.index)
		}
	}
	if slices.Equal(orders[0], orders[1]) {
		t.Error("two epochs have one order")
	}
	for _, o := range orders {
		o = slices.Clone(o)
		slices.Sort(o)
		for i, v := range o {
			if int64(i) != v {
				t.Fatalf("an epoch is no permutation: %v", o)
			}
		}
	}
	read := func(k int64) ([]float32, [2]float32) {
		images, angles := make([]float32, 3*8*16), [2]float32{}
		if err := f.window(f.at(k), images, angles[:]); err != nil {
			t.Fatal(err)
		}
		return images, angles
	}
	a, angles := read(5)
	b, again := read(5)
	if !slices.Equal(a, b) || angles != again {
		t.Error("one place of the stream reads as two things")
	}
	// The same window is augmented differently in the next epoch.
	for k := n; k < 2*n; k++ {
		if f.at(k).index == f.at(5).index {
			if other, _ := read(k); slices.Equal(a, other) {
				t.Error("two epochs augment a window alike")
			}
		}
	}
	u, err := f.Next()
	if err != nil || u.Micro != 2 || u.Weight != 8 {
		t.Fatalf("%+v, %v", u, err)
	}
	cursor, err := json.Marshal(f.Position())
	if err != nil {
		t.Fatal(err)
	}
	g := newDataLoader(c, d.train, 4, 2, "")
	if err := g.Seek(cursor); err != nil || g.done != f.done {
		t.Errorf("after Seek at %d, want %d: %v", g.done, f.done, err)
	}
	refused(t, "the cursor of another run", newDataLoader(c, d.train[1:], 4, 2, "").Seek(cursor), "windows=")
}

// TestFlip: mirroring an image mirrors the sun.
func TestFlip(t *testing.T) {
	images := []float32{1, 2, 3, 4, 5, 6}
	angles := []float32{40, 300}
	(&Augment{Flip: 1}).apply(draw(1, 0, 0), images, 2, 3, angles)
	if want := []float32{3, 2, 1, 6, 5, 4}; !slices.Equal(images, want) {
		t.Errorf("mirrored %v, want %v", images, want)
	}
	if angles[0] != 40 || angles[1] != 60 {
		t.Errorf("angles %v, want 40 and 60", angles)
	}
}

// TestFloatAugment: augmentation loses no precision. Brightness and contrast can be undone, and negative
// values survive.
func TestFloatAugment(t *testing.T) {
	images := make([]float32, 64)
	for i := range images {
		images[i] = float32(i-32) / 7
	}
	was := slices.Clone(images)
	(&Augment{Brightness: 0.5, Contrast: 0.3}).apply(draw(3, 1, 2), images, 8, 8, make([]float32, 2))
	scale := float64(images[63]-images[0]) / float64(was[63]-was[0])
	shift := float64(images[0]) - scale*float64(was[0])
	if scale == 1 || shift == 0 || math.Abs(shift) > 0.5 || math.Abs(scale-1) > 0.3 {
		t.Fatalf("scaled by %v, shifted by %v", scale, shift)
	}
	for i := range images {
		near(t, "pixel", float64(images[i]), scale*float64(was[i])+shift, 1e-5)
	}
}

// TestErase: a rectangle of 2 to 10 % is erased, the same in every frame.
func TestErase(t *testing.T) {
	for seed := range uint64(50) {
		images := make([]float32, 2*40*30)
		for i := range images {
			images[i] = 1
		}
		(&Augment{Erase: 1}).apply(draw(seed, 0, 0), images, 40, 30, make([]float32, 2))
		if !slices.Equal(images[:1200], images[1200:]) {
			t.Fatal("frames are erased differently")
		}
		gone := 0
		for _, v := range images[:1200] {
			if v == 0 {
				gone++
			}
		}
		if share := float64(gone) / 1200; share < 0.015 || share > 0.11 {
			t.Errorf("%.1f %% of the picture are gone", 100*share)
		}
	}
}

// TestHide: masks hide the configured share of each image.
func TestHide(t *testing.T) {
	mask := make([]float32, 3*16)
	hide(draw(1, 2, 3), mask, 16, 0.75)
	for k := range 3 {
		sum := float32(0)
		for _, v := range mask[k*16 : (k+1)*16] {
			sum += v
		}
		if sum != 12 {
			t.Errorf("picture %d hides %v of 16 patches, want 12", k, sum)
		}
	}
	if slices.Equal(mask[:16], mask[16:32]) {
		t.Error("two pictures hide the same patches")
	}
}

// TestParallax: the displacement between the frames of a computed flight matches the distance of the layer.
func TestParallax(t *testing.T) {
	for _, base := range []float64{0.2, 1, 2} {
		s := Synthetic{Flights: 1, Bursts: 1, BurstFrames: 3, Interval: 0.5, Pause: 30, Altitude: 4, Speed: 100, FieldOfView: 40, BaseMin: base, BaseMax: base + 1e-9, Seed: 7}
		f := s.flight(0, 96, 96)
		a, b := make([]float32, 96*96), make([]float32, 96*96)
		if err := errors.Join(f.frame(0, a), f.frame(2, b)); err != nil {
			t.Fatal(err)
		}
		pixel := 2 * math.Tan(20*math.Pi/180) / 96 * (s.Altitude - base) * 1000
		want := s.Speed * 2 * s.Interval / pixel
		// Find the downward shift of the whole image with the smallest difference, and refine it between
		// pixels with a parabola. What is ahead moves down.
		best, at := math.Inf(1), 0
		cost := make([]float64, 16)
		for shift := range cost {
			n := 0.0
			for y := 20; y < 96; y++ {
				for x := range 96 {
					d := float64(b[y*96+x] - a[(y-shift)*96+x])
					cost[shift] += d * d
					n++
				}
			}
			if cost[shift] /= n; cost[shift] < best {
				best, at = cost[shift], shift
			}
		}
		got := float64(at)
		if at > 0 && at < 15 {
			l, r := cost[at-1], cost[at+1]
			got += (l - r) / (2 * (l - 2*best + r))
		}
		if math.Abs(got-want) > 0.5 {
			t.Errorf("base %v km: the picture moves by %.2f pixels, geometry says %.2f", base, got, want)
		}
	}
}

// TestSynthetic: flights repeat bit for bit, and differ from each other.
func TestSynthetic(t *testing.T) {
	c := configure(t)
	a, b := stored(t, c), stored(t, c)
	for k := range a.Flights {
		if !slices.Equal(a.Flights[k].all(t), b.Flights[k].all(t)) || !slices.Equal(a.Flights[k].Base, b.Flights[k].Base) {
			t.Errorf("%s is not the same twice", a.Flights[k].Name)
		}
	}
	if slices.Equal(a.Flights[0].all(t), a.Flights[1].all(t)) {
		t.Error("two flights are one")
	}
	for _, v := range a.Flights[0].Base {
		if v < 0.2 || v > 2 {
			t.Errorf("a base of %v km", v)
		}
	}
}

// writeNPZ writes a flight of 6 frames of 8 x 16 pixels that a test can check.
func writeNPZ(t *testing.T, path string, frames any, more map[string][]float64) {
	t.Helper()
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := npztest.NewWriter(file)
	if err := w.Write(npzFrames, []int{6, 8, 16}, frames); err != nil {
		t.Fatal(err)
	}
	for name, v := range more {
		if err := w.Write(name, []int{len(v)}, v); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), file.Close()); err != nil {
		t.Fatal(err)
	}
}

func columns() map[string][]float64 {
	return map[string][]float64{
		npzTime: {0, 1, 2, 3, 4, 5}, npzSZA: {30, 30, 31, 31, 32, 32}, npzSAA: {200, 200, 200, 201, 201, 202},
		npzBase: {1, math.NaN(), 1.5, 1.25, 1, 0.75},
	}
}

func TestNPZ(t *testing.T) {
	dir := t.TempDir()
	bytes, floats := make([]uint8, 6*8*16), make([]float32, 6*8*16)
	for i := range bytes {
		bytes[i], floats[i] = uint8(i*7), float32(i*7%256)/255
	}
	writeNPZ(t, filepath.Join(dir, "bytes.npz"), bytes, columns())
	writeNPZ(t, filepath.Join(dir, "floats.npz"), floats, columns())
	c := configure(t, "data.source", dir)
	s := stored(t, c)
	if got := s.names(); !slices.Equal(got, []string{"bytes", "floats"}) {
		t.Fatalf("flights %v", got)
	}
	for k, f := range s.Flights {
		if got := f.all(t); !slices.Equal(got, floats) {
			t.Errorf("%s: other pixels come back", f.Name)
		}
		if want := []pixel{pixelU8, pixelF32}[k]; f.Pixels != want || f.Base[1] != unknown || f.Base[3] != 1.25 || f.SAA[5] != 202 {
			t.Errorf("%s: %v, %v", f.Name, f.Pixels, f.Base)
		}
		if list := windows(c, f, false); len(list) != 3 { // the middle frame of the first window has no label
			t.Errorf("%s: %d windows, want 3", f.Name, len(list))
		}
	}
	// An existing store is opened, not made again.
	calls := 0
	again := func() ([]*flight, error) { calls++; return flights(c) }
	cache := t.TempDir()
	for range 2 {
		s, err := prepare(context.Background(), cache, "k", false, again, t.Logf)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(s.keep(), s.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if calls != 1 {
		t.Errorf("read %d times", calls)
	}
	key, err := storeKey(c)
	if err != nil {
		t.Fatal(err)
	}
	writeNPZ(t, filepath.Join(dir, "more.npz"), floats, columns())
	if other, err := storeKey(c); err != nil || other == key {
		t.Errorf("another file has the same key: %v", err)
	}
}

func TestBadSources(t *testing.T) {
	dir := t.TempDir()
	floats := make([]float32, 6*8*16)
	path := func(name string) string { return filepath.Join(dir, name) }
	try := func(source string, more ...string) error {
		c, err := tryConfigure(append([]string{"data.source", source}, more...)...)
		if err != nil {
			return err
		}
		key, err := storeKey(c)
		if err != nil {
			return err
		}
		s, err := prepare(context.Background(), t.TempDir(), key, false, func() ([]*flight, error) { return flights(c) }, t.Logf)
		if err != nil {
			return err
		}
		return s.Close()
	}
	if err := os.WriteFile(path("x.h5"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	refused(t, "HDF5", try(path("x.h5")), "HDF5 is not supported", "savez", "frames=")
	refused(t, "nothing", try(path("*.npz")), "nothing matches")
	refused(t, "an empty folder", try(t.TempDir()), "neither index.csv nor NPZ")
	refused(t, "the generator and a file", try(syntheticSource+","+path("x.h5")), "must be the only source")
	short := columns()
	short[npzSZA] = short[npzSZA][:5]
	writeNPZ(t, path("short.npz"), floats, short)
	refused(t, "a short column", try(path("short.npz")), "short.npz", "sza", "[6]")
	back := columns()
	back[npzTime][3] = 1
	writeNPZ(t, path("back.npz"), floats, back)
	refused(t, "time that runs back", try(path("back.npz")), "frame 3", "order of time")
	bad := slices.Clone(floats)
	bad[8*16+5] = float32(math.NaN())
	writeNPZ(t, path("nan.npz"), bad, columns())
	refused(t, "a pixel that is no number", try(path("nan.npz")), "frame 1", "pixel 5")
	writeNPZ(t, path("good.npz"), floats, columns())
	refused(t, "another size", try(path("good.npz"), "model.height", "16"), "8x16", "16x16", "data.resize")
	refused(t, "rows that are not there", try(path("good.npz"), "data.rows", "4,12"), "data.rows", "8")
	missing := columns()
	delete(missing, npzSAA)
	writeNPZ(t, path("missing.npz"), floats, missing)
	refused(t, "no azimuth", try(path("missing.npz")), `no array "saa"`)
}

// writePictures writes an index with two flights, one of 8-bit PNG and JPEG, and one of 16-bit PNG.
func writePictures(t *testing.T, dir string) {
	t.Helper()
	index := "file,flight,time,sza,saa,cbh\n"
	save := func(name string, img image.Image) {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Ext(name) == ".jpg" {
			err = jpeg.Encode(f, img, &jpeg.Options{Quality: 100})
		} else {
			err = png.Encode(f, img)
		}
		if err = errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		gray, deep := image.NewGray(image.Rect(0, 0, 16, 8)), image.NewGray16(image.Rect(0, 0, 16, 8))
		for y := range 8 {
			for x := range 16 {
				gray.SetGray(x, y, color.Gray{uint8(10*y + x + i)})
				deep.SetGray16(x, y, color.Gray16{uint16(4000*y + 100*x + i)})
			}
		}
		n := string(rune('0' + i))
		ext := ".png"
		if i == 1 {
			ext = ".jpg"
		}
		save("gray"+n+ext, gray)
		save("deep"+n+".png", deep)
		index += "gray" + n + ext + ",gray," + n + ",30,100,1." + n + "\ndeep" + n + ".png,deep," + n + ",30,100,\n"
	}
	if err := os.WriteFile(filepath.Join(dir, folderIndex), []byte(index), 0o666); err != nil {
		t.Fatal(err)
	}
}

func TestPictures(t *testing.T) {
	dir := t.TempDir()
	writePictures(t, dir)
	s := stored(t, configure(t, "data.source", dir))
	if got := s.names(); !slices.Equal(got, []string{"gray", "deep"}) {
		t.Fatalf("flights %v", got)
	}
	gray, deep := s.Flights[0].all(t), s.Flights[1].all(t)
	for y := range 8 {
		for x := range 16 {
			near(t, "8-bit pixel", float64(gray[y*16+x]), float64(10*y+x)/255, 1e-6)
			near(t, "JPEG pixel", float64(gray[128+y*16+x]), float64(10*y+x+1)/255, 0.02)
			near(t, "16-bit pixel", float64(deep[256+y*16+x]), float64(4000*y+100*x+2)/65535, 1e-6)
		}
	}
	if s.Flights[0].Base[2] != 1.2 || s.Flights[1].Base[0] != unknown {
		t.Errorf("labels %v, %v", s.Flights[0].Base, s.Flights[1].Base)
	}
	// Half the size is the mean of four pixels. A crop takes the requested rows.
	half := stored(t, configure(t, "data.source", dir, "data.resize", "true", "data.rows", "4,8", "model.height", "4", "model.width", "8", "data.columns", "8,16"))
	got := half.Flights[0].all(t)
	near(t, "cut pixel", float64(got[0]), float64(10*4+8)/255, 1e-6)
	small := stored(t, configure(t, "data.source", dir, "data.resize", "true", "model.height", "4", "model.width", "8"))
	near(t, "scaled pixel", float64(small.Flights[0].all(t)[0]), (0+1+10+11)/4.0/255, 1e-6)
	if err := os.WriteFile(filepath.Join(dir, folderIndex), []byte("\ufefffile,time,sza,saa\ngray0.png,0,x,1\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	_, err := folderFlights(dir, 64<<20)
	refused(t, "an angle that is no number", err, "index.csv:2", "sza", `"x"`)
}

// TestFilesOutside: neither an index of images nor the index of a store opens files outside its folder.
func TestFilesOutside(t *testing.T) {
	work := t.TempDir()
	dir := filepath.Join(work, "pictures")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	writePictures(t, dir)
	outside := filepath.Join(work, "outside.png")
	if err := errors.Join(os.Rename(filepath.Join(dir, "gray0.png"), outside), os.Symlink(outside, filepath.Join(dir, "link.png"))); err != nil {
		t.Skip(err)
	}
	for _, name := range []string{"../outside.png", outside, "link.png", "./../pictures/../outside.png", ""} {
		if err := os.WriteFile(filepath.Join(dir, folderIndex), []byte("file,time,sza,saa\ngray2.png,0,1,1\n"+name+",1,1,1\n"), 0o666); err != nil {
			t.Fatal(err)
		}
		_, err := folderFlights(dir, 64<<20)
		refused(t, name, err, "index.csv:3", "column file", "leads out of the folder")
	}
	for _, name := range []string{"..", ".", "../outside", "a/b", ""} {
		if err := os.WriteFile(filepath.Join(dir, folderIndex), []byte("file,flight,time,sza,saa\ngray2.png,"+name+",0,1,1\n"), 0o666); err != nil {
			t.Fatal(err)
		}
		_, err := readFlights(configure(t, "data.source", dir), []string{dir})
		refused(t, "the flight "+name, err, "is not a file name")
	}
	store := filepath.Join(work, "frames")
	raw := filepath.Join(work, "outside."+string(pixelU8))
	if err := errors.Join(os.Mkdir(store, 0o755), os.WriteFile(raw, []byte{1}, 0o666), os.Symlink(raw, filepath.Join(store, "link."+string(pixelU8)))); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"../outside", filepath.Join(work, "outside"), "link"} {
		text := fmt.Sprintf(`{"Flights":[{"name":%q,"height":1,"width":1,"pixels":%q,"time":[0]}]}`, name, pixelU8)
		if err := os.WriteFile(filepath.Join(store, indexFile), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		_, err := openStore(store)
		refused(t, name, err, indexFile, "leads out of the folder")
	}
}

// TestPreprocessing: normalized images have the right moments, a flat field is divided out, and equalizing
// spreads the range of an image.
func TestPreprocessing(t *testing.T) {
	picture := make([]float32, 64)
	for i := range picture {
		picture[i] = float32(i*i%37) + 5
	}
	z := slices.Clone(picture)
	normalize(z, "zscore")
	m := momentsOf(widen(z))
	near(t, "mean", m.Mean, 0, 1e-6)
	near(t, "deviation", m.Std, 1, 1e-6)
	mm := slices.Clone(picture)
	normalize(mm, "minmax")
	if slices.Min(mm) != 0 || slices.Max(mm) != 1 {
		t.Errorf("from %v to %v", slices.Min(mm), slices.Max(mm))
	}
	flat := []float32{2, 2, 2}
	normalize(flat, "zscore")
	if !slices.Equal(flat, []float32{0, 0, 0}) {
		t.Errorf("a picture of one brightness becomes %v", flat)
	}
	// The lens darkens half of the image.
	scene, field := []float32{4, 4, 2, 2}, []float32{2, 2, 1, 1}
	flatten(scene, field)
	if !slices.Equal(scene, []float32{3, 3, 3, 3}) {
		t.Errorf("flat-fielded %v, want 3 everywhere", scene)
	}
	dark := make([]float32, 32*32)
	for i := range dark {
		dark[i] = float32(i%7) * 0.001 // almost no contrast, except for one bright pixel
	}
	dark[0] = 1
	equalize(dark, 32, 32, 1)
	if s := momentsOf(widen(dark)).Std; s < 0.1 {
		t.Errorf("equalized, the deviation is %v", s)
	}
	for _, v := range dark {
		if v < 0 || v > 1 {
			t.Fatalf("equalized to %v", v)
		}
	}
}

// TestChecks: settings that cannot train are rejected by key.
func TestChecks(t *testing.T) {
	for _, c := range []struct{ key, value, says string }{
		{"model.view", "4", "model.view"},
		{"model.channels", "4,8,16,32,64", "halve an image of"},
		{"model.dense_dropout", "0.1", "want 2 shares"},
		{"training.batch_size", "1", "at least 2 examples"},
		{"split.test", "flight-01,flight-01", "one side only"},
		{"phases.run", "fold", "to leave out"},
		{"phases.run", "pretrain", "to pre-train on"},
		{"synthetic.base_max", "5", "ascending"},
		{"synthetic.burst_frames", "2", "no room"},
		{"loss.type", "mea", "mae"},
	} {
		_, err := tryConfigure(c.key, c.value)
		refused(t, c.key+" "+c.value, err, c.says)
	}
	_, err := tryConfigure("model.norm", "group", "model.groups", "3")
	refused(t, "groups", err, "do not divide into 3 groups")
	_, err = tryConfigure("model.norm", "group", "model.channels", "8,16,32", "model.groups", "8")
	refused(t, "small groups", err, "8 groups of the 16 features of the head are 2 numbers each, and normalization leaves almost nothing of so few: want at least 4, so at most 4 groups")
	_, err = tryConfigure("split.validation", "flight-01", "phases.pretrain_flight", "flight-01")
	refused(t, "pre-training on a held-out flight", err, "would leak")
}

// TestCounts: the guide's networks have the guide's numbers of parameters.
func TestCounts(t *testing.T) {
	for _, c := range []struct {
		channels string
		want     int64
	}{{"64,128,256", 536846}, {"32,64,128", 143886}} {
		cfg := configure(t, "model.channels", c.channels, "model.angles", "linear", "model.bias_before_norm", "true", "model.height", "16", "training.batch_size", "2")
		if got := parameters(t, cfg); got != c.want {
			t.Errorf("channels %s: %d parameters, want %d", c.channels, got, c.want)
		}
	}
}

// TestPhases: the configured phases come in order, each starting from the previous one.
func TestPhases(t *testing.T) {
	c := configure(t, "phases.run", "all", "phases.pretrain_flight", "flight-01", "phases.masked", "true", "phases.loo", "true", "split.validation", "flight-02", "phases.pretrain_steps", "7")
	var names []string
	for _, p := range phases(c, "out") {
		names = append(names, p.Name)
		for _, s := range p.Settings {
			if s.Key == "phases.init" {
				names = append(names, s.Text)
			}
		}
	}
	want := []string{"masked", "", "pretrain", filepath.Join("out", "masked"), "final", filepath.Join("out", "pretrain"), "loo-flight-01", "", "loo-flight-03", "", "loo-flight-04", ""}
	if !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
	if p := phases(configure(t), "out"); p != nil {
		t.Errorf("a single run has phases %v", p)
	}
	for _, p := range phases(c, t.TempDir())[1:3] {
		refused(t, p.Name+" without the one before", p.Ready(), "checkpoint")
	}
}

func parameters(t *testing.T, c *config.Config) int64 {
	t.Helper()
	p := compile(t, c)
	all, _ := p.Parameters()
	return all
}
