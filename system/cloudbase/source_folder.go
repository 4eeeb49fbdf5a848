package cloudbase

import (
	"encoding/csv"
	"errors"
	"fmt"
	"image"
	"image/color"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/snug-ml/snug/data"
	"github.com/snug-ml/snug/data/picture"
	"github.com/snug-ml/snug/internal/few"
	"github.com/snug-ml/snug/internal/regular"
)

// folderIndex is the CSV file in a folder of images, with a header:
//
//	file    path of a PNG or JPEG, relative to the index
//	flight  its flight; without the column, the folder's name
//	time    seconds
//	sza     degrees
//	saa     degrees
//	cbh     km; empty if unknown. The column may be absent.
//
// Rows are in order of time within a flight.
const folderIndex = "index.csv"

// folderFlights returns the flights in a folder of images, each of which may take at most most bytes.
func folderFlights(dir string, most int64) (flights []*flight, err error) {
	path := filepath.Join(dir, folderIndex)
	file, err := data.OpenFile(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // read only, so there is nothing to lose
	r := csv.NewReader(file)
	r.ReuseRecord = true
	head, err := r.Read()
	if err != nil {
		return nil, fmt.Errorf("%s: header: %w", path, err)
	}
	at := map[string]int{}
	for i, name := range head {
		at[strings.ToLower(strings.TrimSpace(name))] = i
	}
	for _, name := range []string{"file", "time", "sza", "saa"} {
		if _, ok := at[name]; !ok {
			return nil, fmt.Errorf("%s: no column %q; it has %s", path, name, few.Of(head))
		}
	}
	folder, err := regular.NewFolder(dir)
	if err != nil {
		return nil, err
	}
	files := map[*flight][]string{}
	byName := map[string]*flight{}
	for {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		line, _ := r.FieldPos(0)
		name := filepath.Base(filepath.Clean(dir))
		if i, ok := at["flight"]; ok {
			name = row[i]
		}
		f := byName[name]
		if f == nil {
			f = &flight{Name: name}
			byName[name], flights = f, append(flights, f)
		}
		for _, c := range []struct {
			name string
			into *[]float64
		}{{"time", &f.Time}, {"sza", &f.SZA}, {"saa", &f.SAA}, {"cbh", &f.Base}} {
			v := math.NaN()
			if i, ok := at[c.name]; ok && (c.name != "cbh" || strings.TrimSpace(row[i]) != "") {
				if v, err = strconv.ParseFloat(strings.TrimSpace(row[i]), 64); err != nil {
					return nil, fmt.Errorf("%s:%d: column %s: want a number, got %q", path, line, c.name, row[i])
				}
			}
			*c.into = append(*c.into, v)
		}
		picture, err := folder.Path(row[at["file"]])
		if err != nil {
			return nil, fmt.Errorf("%s:%d: column file: %w", path, line, err)
		}
		files[f] = append(files[f], picture)
	}
	if len(flights) == 0 {
		return nil, fmt.Errorf("%s lists no images", path)
	}
	for _, f := range flights {
		if err := f.pictures(files[f], most); err != nil {
			return nil, err
		}
	}
	return flights, nil
}

// pictures makes files the frames of f. Each may take at most most bytes when decoded, and the first one
// determines their size.
func (f *flight) pictures(files []string, most int64) error {
	first, err := picture.ReadHeader(files[0], most)
	if err != nil {
		return err
	}
	f.Width, f.Height = first.Width, first.Height
	f.pixels = pixelU8
	if first.Deep {
		f.pixels = pixelU16
	}
	files = slices.Clone(files)
	f.frame = func(i int, dst []float32) error {
		img, err := picture.Decode(files[i], most, func(h picture.Header) error {
			if h.Width != f.Width || h.Height != f.Height {
				return fmt.Errorf("it has %dx%d pixels, the first image of the flight %dx%d", h.Height, h.Width, f.Height, f.Width)
			}
			return nil
		})
		if err != nil {
			return err
		}
		luminance(img, dst)
		return nil
	}
	return nil
}

// luminance writes the brightness of an image's pixels, from 0 to 1.
func luminance(img image.Image, dst []float32) {
	b := img.Bounds()
	k := 0
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			g := color.Gray16Model.Convert(img.At(x, y)).(color.Gray16)
			dst[k] = float32(g.Y) / math.MaxUint16
			k++
		}
	}
}
