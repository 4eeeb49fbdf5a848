package cloudbase

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/snug-ml/snug/internal/durable"
	"github.com/snug-ml/snug/internal/regular"
	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/internal/strictjson"
)

// store keeps flights as files of images in order of time, so that a window is one read, and memory does not
// grow with the flights.
type store struct {
	Flights []*recording
	dir     string // folder of the files
	final   string // where [store.keep] moves them; empty if they are there already
	id      string // of everything stored; empty in older indexes
}

// recording is a stored flight.
type recording struct {
	Name   string    `json:"name"`
	Height int       `json:"height"`
	Width  int       `json:"width"`
	Pixels pixel     `json:"pixels"`
	Time   []float64 `json:"time"`
	SZA    []float64 `json:"sza"`
	SAA    []float64 `json:"saa"`
	// Base is -1 where it is unknown, because JSON has no NaN.
	Base []float64 `json:"base"`
	// Flat is the mean of the first flatFrames images, for flat-fielding; empty if that is off.
	Flat []float32 `json:"flat,omitempty"`
	// SHA256 is the hash of the file of images.
	SHA256 string `json:"sha256,omitempty"`
	file   *os.File
}

// unknown marks a frame without a label.
const unknown = -1

// flatFrames is the number of images averaged for a flat field.
const flatFrames = 100

// indexFile is written last, so it marks a store as complete.
const indexFile = "index.json"

// prepare opens the store of an earlier run below dir, or stores the flights there, in a folder that gets its
// final name from [store.keep]. key identifies the sources and the settings that the store depends on.
func prepare(ctx context.Context, dir, key string, flat bool, flights func() ([]*flight, error), log func(string, ...any)) (s *store, err error) {
	dir = filepath.Join(dir, "frames-"+key)
	s, err = openStore(dir)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return s, err
	}
	all, err := flights()
	if err != nil {
		return nil, err
	}
	log("data: storing %s in %s", size.Of(len(all), "flight"), dir)
	tmp, err := durable.Stage(dir)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(tmp))
		}
	}()
	s = &store{Flights: make([]*recording, len(all))}
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	turn := make(chan struct{}, storing)
	for i, f := range all {
		wg.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			s.Flights[i], errs[i] = write(ctx, tmp, f, flat)
		})
	}
	wg.Wait()
	for _, err := range errs {
		if errors.Is(err, syscall.ENOSPC) {
			return nil, err // the other flights failed for the same reason
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	raw, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	if err := durable.Replace(filepath.Join(tmp, indexFile), raw); err != nil {
		return nil, err
	}
	if s, err = openStore(tmp); err != nil {
		return nil, err
	}
	s.final = dir
	return s, nil
}

// keep gives a new store its final name, under which the next run finds it.
func (s *store) keep() error {
	if s.final == "" {
		return nil
	}
	if err := durable.Swap(s.dir, s.final); err != nil {
		return err
	}
	s.dir, s.final = s.final, ""
	return nil
}

// storing is the number of flights stored at a time.
const storing = 4

// write stores one flight.
func write(ctx context.Context, dir string, f *flight, flat bool) (r *recording, err error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	r = &recording{Name: f.Name, Height: f.Height, Width: f.Width, Pixels: f.pixels, Time: f.Time, SZA: f.SZA, SAA: f.SAA}
	for _, b := range f.Base {
		if math.IsNaN(b) {
			b = unknown
		}
		r.Base = append(r.Base, b)
	}
	file, err := os.Create(filepath.Join(dir, r.fileName()))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	h := sha256.New()
	w := bufio.NewWriterSize(io.MultiWriter(file, h), 1<<20)
	picture := make([]float32, f.Height*f.Width)
	raw := make([]byte, len(picture)*f.pixels.bytes())
	sum := make([]float64, len(picture))
	for i := range f.Time {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := f.frame(i, picture); err != nil {
			return nil, fmt.Errorf("flight %s, frame %d: %w", f.Name, i, err)
		}
		if err := finitePicture(picture); err != nil {
			return nil, fmt.Errorf("flight %s, frame %d: %w", f.Name, i, err)
		}
		if flat && i < flatFrames {
			for k, v := range picture {
				sum[k] += float64(v)
			}
		}
		f.pixels.put(raw, picture)
		if _, err := w.Write(raw); err != nil {
			return nil, err
		}
	}
	if flat {
		r.Flat = make([]float32, len(sum))
		for k, v := range sum {
			r.Flat[k] = float32(v / float64(min(flatFrames, len(f.Time))))
		}
	}
	if err := w.Flush(); err != nil {
		return nil, err
	}
	r.SHA256 = hex.EncodeToString(h.Sum(nil))
	return r, nil
}

func finitePicture(p []float32) error {
	for k, v := range p {
		if x := float64(v); math.IsNaN(x) || math.IsInf(x, 0) {
			return fmt.Errorf("pixel %d is %v; want finite pixels", k, v)
		}
	}
	return nil
}

func (r *recording) fileName() string { return r.Name + "." + string(r.Pixels) }

func openStore(dir string) (*store, error) {
	raw, err := regular.Read(filepath.Join(dir, indexFile), regular.Log)
	if err != nil {
		return nil, err
	}
	s := &store{dir: dir}
	if err := strictjson.Unmarshal(raw, s); err != nil {
		return nil, fmt.Errorf("%s: %w; remove the folder to create it again", filepath.Join(dir, indexFile), err)
	}
	if !slices.ContainsFunc(s.Flights, func(r *recording) bool { return r.SHA256 == "" }) {
		sum := sha256.Sum256(raw)
		s.id = hex.EncodeToString(sum[:])
	}
	folder, err := regular.NewFolder(dir)
	if err != nil {
		return nil, err
	}
	for _, r := range s.Flights {
		path, err := folder.Path(r.fileName())
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w; remove the folder to create it again", filepath.Join(dir, indexFile), err), s.Close())
		}
		if r.file, err = regular.Open(path); err != nil {
			return nil, errors.Join(err, s.Close())
		}
		info, err := r.file.Stat()
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		if want := int64(len(r.Time)) * r.bytes(); info.Size() != want {
			return nil, errors.Join(fmt.Errorf("%s has %d bytes, its index says %d; remove the folder to create it again", path, info.Size(), want), s.Close())
		}
	}
	return s, nil
}

// Close closes the files, and removes those that were not kept.
func (s *store) Close() error {
	var errs []error
	if s.final != "" {
		defer func() { _ = os.RemoveAll(s.dir) }() // the next run removes leftovers
	}
	for _, r := range s.Flights {
		if r.file != nil {
			errs = append(errs, r.file.Close())
		}
	}
	return errors.Join(errs...)
}

// bytes returns the size of a stored image.
func (r *recording) bytes() int64 { return int64(r.Height) * int64(r.Width) * int64(r.Pixels.bytes()) }

// read decodes n images from frame first on, through buffer.
func (r *recording) read(dst []float32, first, n int, buffer []byte) error {
	raw := buffer[:int64(n)*r.bytes()]
	if _, err := r.file.ReadAt(raw, int64(first)*r.bytes()); err != nil {
		return fmt.Errorf("%s: frames %d to %d: %w", r.file.Name(), first, first+n-1, err)
	}
	r.Pixels.get(dst[:n*r.Height*r.Width], raw)
	return nil
}
