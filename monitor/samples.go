package monitor

import (
	"bytes"
	"encoding/json"

	"github.com/snug-ml/snug/train/rundir"
)

// SampleWriter writes the samples of a run. The file is appended to, and rewritten
// after every 600 samples, thinned with age: it never holds more than 3360 of them,
// 2 MiB. It is not safe for concurrent use.
type SampleWriter struct {
	file  *lineFile
	tiers tiers
	added int // since the file was rewritten
}

// addedSamples are added before the file is rewritten.
const addedSamples = 600

// NewSampleWriter continues the samples of the run in dir.
func NewSampleWriter(dir *rundir.Dir) (*SampleWriter, error) {
	w := &SampleWriter{}
	var err error
	w.file, err = openLines(dir, SamplesFile, func(raw []byte) {
		var s Sample
		if json.Unmarshal(raw, &s) == nil {
			w.tiers.add(s)
		}
	})
	if err != nil {
		return nil, err
	}
	return w, w.rewrite()
}

// ReadSamples returns the samples so far of the run in dir.
func ReadSamples(dir *rundir.Dir) (list []Sample, err error) {
	_, err = openLines(dir, SamplesFile, func(raw []byte) {
		var s Sample
		if json.Unmarshal(raw, &s) == nil {
			list = append(list, s)
		}
	})
	return list, err
}

// Add writes a sample. After an error the next successful write adds what is missing.
func (w *SampleWriter) Add(s Sample) error {
	w.tiers.add(s)
	if w.added++; w.added > addedSamples || !w.file.whole() {
		return w.rewrite()
	}
	line, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return w.file.add(line)
}

func (w *SampleWriter) rewrite() error {
	var text bytes.Buffer
	for _, s := range w.tiers.all() {
		line, err := json.Marshal(s)
		if err != nil {
			return err
		}
		text.Write(line)
		text.WriteByte('\n')
	}
	w.added = 0
	return w.file.rewrite(text.Bytes())
}

// Close closes the file.
func (w *SampleWriter) Close() error { return w.file.close() }
