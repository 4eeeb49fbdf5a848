package cloudbase

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/data"
	"github.com/snug-ml/snug/train"
)

// reader writes windows to the inputs of a program.
type reader struct {
	model   *Model
	data    *Data
	augment *Augment // nil means no augmentation
	seed    uint64
	workers int
	masked  bool
	buffers sync.Pool // holds *[]byte
}

func newReader(c *config.Config) *reader {
	return &reader{
		model: config.Of[Model](c), data: config.Of[Data](c), seed: c.Data.ShuffleSeed, workers: c.Data.Workers,
		masked: config.Of[Phases](c).Run == "mae",
	}
}

// example is a window and its position in the stream.
type example struct {
	window
	epoch, index int64
}

// fill writes examples to the rows of a micro-batch. Rows without one have weight 0. Rows are read in
// parallel.
func (r *reader) fill(list []example, in train.Inputs) error {
	images, err := in.F32(inputImages)
	if err != nil {
		return err
	}
	weights, err := in.F32(inputWeights)
	if err != nil {
		return err
	}
	var angles, base, mask []float32
	if in.Has(inputAngles) {
		if angles, err = in.F32(inputAngles); err != nil {
			return err
		}
	}
	if in.Has(inputBase) {
		if base, err = in.F32(inputBase); err != nil {
			return err
		}
	}
	if r.masked {
		if mask, err = in.F32(inputMask); err != nil {
			return err
		}
	}
	rows := len(weights)
	if len(list) > rows {
		return fmt.Errorf("%d examples for a micro-batch of %d", len(list), rows)
	}
	part := func(x []float32, row int) []float32 { return x[len(x)/rows*row : len(x)/rows*(row+1)] }
	one := func(row int) error {
		if row >= len(list) {
			weights[row] = 0
			for _, x := range [][]float32{images, angles, base, mask} {
				clear(part(x, row))
			}
			return nil
		}
		weights[row] = 1
		e, sun := list[row], [2]float32{}
		if err := r.window(e, part(images, row), sun[:]); err != nil {
			return err
		}
		copy(part(angles, row), sun[:])
		if base != nil {
			base[row] = float32(e.flight.Base[e.middle(r.model.Frames)])
		}
		if mask != nil {
			m := r.model
			hide(draw(^r.seed, e.epoch, e.index), part(mask, row), m.Height/m.MaskPatch*(m.Width/m.MaskPatch), m.MaskShare)
		}
		return nil
	}
	errs := make([]error, r.workers)
	var wg sync.WaitGroup
	for k := range r.workers {
		wg.Go(func() {
			for row := k; row < rows; row += r.workers {
				errs[k] = errors.Join(errs[k], one(row))
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// window reads one example: images and the sun's angles.
func (r *reader) window(e example, images, angles []float32) error {
	f, n := e.flight, r.model.Frames
	need := n * int(f.bytes())
	buffer, _ := r.buffers.Get().(*[]byte)
	if buffer == nil || len(*buffer) < need {
		b := make([]byte, need)
		buffer = &b
	}
	defer r.buffers.Put(buffer)
	if err := f.read(images, e.first, n, *buffer); err != nil {
		return err
	}
	size := f.Height * f.Width
	for k := range n {
		picture := images[k*size : (k+1)*size]
		flatten(picture, f.Flat)
		if r.data.Clahe > 0 {
			equalize(picture, f.Height, f.Width, r.data.Clahe)
		}
		normalize(picture, r.data.Normalize)
	}
	i := e.middle(n)
	angles[0], angles[1] = float32(f.SZA[i]), float32(f.SAA[i])
	if r.augment != nil {
		r.augment.apply(draw(r.seed, e.epoch, e.index), images, f.Height, f.Width, angles)
	}
	return nil
}

// dataLoader streams training windows endlessly. Epochs with different orders are joined seamlessly, so that
// every micro-batch is full.
type dataLoader struct {
	*reader
	list        []window
	rows, micro int
	shuffle     bool
	done        int64 // number of examples handed out
	order       string
	flights     string // id of the stored flights
}

// position is the position of a dataLoader in its stream.
type position struct {
	Examples int64 `json:"examples"`
	// Order identifies what the stream depends on.
	Order string `json:"order"`
	// Flights is the id of the stored flights; empty in older checkpoints.
	Flights string `json:"flights,omitempty"`
}

func newDataLoader(c *config.Config, list []window, rows, micro int, flights string) *dataLoader {
	f := &dataLoader{reader: newReader(c), list: list, rows: rows, micro: micro, shuffle: c.Data.Shuffle, flights: flights}
	if config.Of[Phases](c).Run != "mae" {
		f.augment = config.Of[Augment](c)
	}
	f.order = fmt.Sprintf("windows=%d shuffle=%t seed=%d", len(list), f.shuffle, f.seed)
	return f
}

// at returns example number k of the stream.
func (f *dataLoader) at(k int64) example {
	n := int64(len(f.list))
	e := example{epoch: k / n, index: k % n}
	if f.shuffle {
		p := data.NewPermutation(n, f.seed, uint64(e.epoch))
		e.index = p.At(e.index)
	}
	e.window = f.list[e.index]
	return e
}

// Next implements [train.DataLoader].
func (f *dataLoader) Next() (train.Update, error) {
	first := f.done
	f.done += int64(f.rows * f.micro)
	return train.Update{
		Micro: f.micro, Weight: float64(f.rows * f.micro), Tokens: int64(f.rows * f.micro),
		Fill: func(m int, in train.Inputs) error {
			list := make([]example, f.rows)
			for i := range list {
				list[i] = f.at(first + int64(m*f.rows+i))
			}
			return f.fill(list, in)
		},
	}, nil
}

// Position implements [train.DataLoader].
func (f *dataLoader) Position() any { return position{f.done, f.order, f.flights} }

// Seek implements [train.DataLoader].
func (f *dataLoader) Seek(cursor json.RawMessage) error {
	var p position
	if err := json.Unmarshal(cursor, &p); err != nil {
		return err
	}
	if p.Order != f.order || p.Examples < 0 {
		return fmt.Errorf("then %s, now %s", p.Order, f.order)
	}
	if p.Flights != "" && f.flights != "" && p.Flights != f.flights {
		return fmt.Errorf("the flights have changed")
	}
	f.done = p.Examples
	return nil
}

// Close implements [train.DataLoader].
func (f *dataLoader) Close() {}
