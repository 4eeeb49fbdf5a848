// Package tensorboard writes event files, which TensorBoard reads.
//
// A record is its length (uint64), a masked CRC-32C of the length, the bytes of an Event
// in protocol-buffer encoding, and a masked CRC-32C of them, all little-endian. Each
// session writes a file of its own. One that resumes a run begins with SessionLog START,
// by which readers drop what the run did after its checkpoint.
package tensorboard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/snug-ml/snug/train/rundir"
)

// Folder is the folder of event files in a run directory.
const Folder = "tensorboard"

// prefix begins the name of an event file; the seconds since 1970 follow, by which
// readers order them.
const prefix = "events.out.tfevents."

// Scalar is a named figure of an update.
type Scalar struct {
	Tag   string
	Value float64
}

// Writer writes an event file. It is not safe for concurrent use.
type Writer struct {
	f    io.WriteCloser
	torn bool // the last record may be incomplete: readers would stop there
}

// Create begins the event file of a session that continues after update from; 0 is a new
// run, which removes files of earlier ones.
func Create(dir *rundir.Dir, now time.Time, from int64) (*Writer, error) {
	root := dir.Root()
	if err := root.MkdirAll(Folder, 0o777); err != nil {
		return nil, err
	}
	last, err := earlier(root, from == 0)
	if err != nil {
		return nil, err
	}
	// If the clock went back, this file must still sort after those of earlier sessions.
	name := fmt.Sprintf("%s%010d.snug.%d", prefix, max(now.Unix(), last+1), os.Getpid())
	f, err := root.OpenFile(path.Join(Folder, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if err != nil {
		return nil, err
	}
	w := &Writer{f: f}
	err = w.write(event(now, 0, stringField(3, "brain.Event:2")))
	if err == nil && from > 0 {
		const start = 1
		err = w.write(event(now, from+1, bytesField(7, varintField(1, start))))
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return w, nil
}

// earlier returns the seconds in the name of the last event file, and removes all event
// files if they belong to another run.
func earlier(root *os.Root, remove bool) (last int64, err error) {
	list, err := fs.ReadDir(root.FS(), Folder)
	if err != nil {
		return 0, err
	}
	for _, e := range list {
		rest, ok := strings.CutPrefix(e.Name(), prefix)
		if !ok || !e.Type().IsRegular() {
			continue
		}
		if remove {
			if err := root.Remove(path.Join(Folder, e.Name())); err != nil {
				return 0, err
			}
			continue
		}
		digits, _, _ := strings.Cut(rest, ".")
		if n, err := strconv.ParseInt(digits, 10, 64); err == nil && n < 1<<33 {
			last = max(last, n)
		}
	}
	return last, nil
}

// Add writes figures of an update.
func (w *Writer) Add(at time.Time, update int64, scalars []Scalar) error {
	var summary []byte
	for _, s := range scalars {
		value := append(stringField(1, s.Tag), floatField(2, float32(s.Value))...)
		summary = append(summary, bytesField(1, value)...)
	}
	return w.write(event(at, update, bytesField(5, summary)))
}

// Close closes the file.
func (w *Writer) Close() error { return w.f.Close() }

// errTorn is the error of a file in which a record may be incomplete.
var errTorn = errors.New("an earlier record could not be written completely")

func (w *Writer) write(data []byte) error {
	if w.torn {
		return errTorn
	}
	record := binary.LittleEndian.AppendUint64(nil, uint64(len(data)))
	record = binary.LittleEndian.AppendUint32(record, masked(record))
	record = append(record, data...)
	record = binary.LittleEndian.AppendUint32(record, masked(data))
	_, err := w.f.Write(record)
	w.torn = err != nil
	return err
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// masked is the CRC-32C of data, rotated and shifted: the checksum of data that
// contains checksums would otherwise be weak.
func masked(data []byte) uint32 {
	c := crc32.Checksum(data, castagnoli)
	return (c>>15 | c<<17) + 0xa282ead8
}

// Fields of protocol buffers. An Event has wall_time (1, double), step (2, int64), and
// one of file_version (3), summary (5), session_log (7).

const (
	varint  = 0
	fixed64 = 1
	length  = 2
	fixed32 = 5
)

func event(at time.Time, step int64, what []byte) []byte {
	b := key(1, fixed64)
	b = binary.LittleEndian.AppendUint64(b, math.Float64bits(float64(at.UnixMicro())/1e6))
	if step != 0 {
		b = append(b, varintField(2, uint64(step))...)
	}
	return append(b, what...)
}

func key(field, kind int) []byte {
	return binary.AppendUvarint(nil, uint64(field<<3|kind))
}

func varintField(field int, v uint64) []byte {
	return binary.AppendUvarint(key(field, varint), v)
}

func floatField(field int, v float32) []byte {
	return binary.LittleEndian.AppendUint32(key(field, fixed32), math.Float32bits(v))
}

func bytesField(field int, v []byte) []byte {
	return append(binary.AppendUvarint(key(field, length), uint64(len(v))), v...)
}

func stringField(field int, v string) []byte { return bytesField(field, []byte(v)) }
