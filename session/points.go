package session

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"slices"
	"time"

	"github.com/snug-ml/snug/internal/regular"
	"github.com/snug-ml/snug/monitor"
	"github.com/snug-ml/snug/train"
	"github.com/snug-ml/snug/train/checkpoint"
	"github.com/snug-ml/snug/train/mlflow"
	"github.com/snug-ml/snug/train/rundir"
)

// Names of figures, the same in every format that other programs read.
const (
	tagLoss      = "train/loss"
	tagLR        = "train/learning_rate"
	tagGradNorm  = "train/grad_norm"
	tagLossScale = "train/loss_scale"
	tagSeconds   = "speed/update_seconds"
	tagWait      = "speed/data_wait_seconds"
	tagEval      = "eval/" // followed by the name of a metric
)

// tagRate returns the name of the figure for units per second.
func tagRate(unit string) string { return "speed/" + unit + "_per_second" }

// runPoints reads the points of a run's curves from its files as they grow.
type runPoints struct {
	dir    *rundir.Dir
	unit   string
	offset int64 // end of the last line read from metrics.jsonl
}

// began returns the time of the run's first line, or the given time if there is none.
func (p *runPoints) began(or time.Time) time.Time {
	first := time.Time{}
	ahead := runPoints{dir: p.dir}
	_ = ahead.lines(0, func(l *train.Line) bool { // Metrics reports what cannot be read
		if l.Time > 0 {
			first = lineTime(l)
		}
		return first.IsZero()
	})
	if first.IsZero() || first.After(or) {
		return or
	}
	return first
}

// Metrics returns the points of the next lines.
func (p *runPoints) Metrics(most int) (list []mlflow.Metric, err error) {
	err = p.lines(p.offset, func(l *train.Line) bool {
		list = append(list, points(l, p.unit)...)
		return len(list) < most
	})
	return list, err
}

// lines calls each with the complete lines after an offset, until it returns false.
func (p *runPoints) lines(from int64, each func(*train.Line) bool) error {
	f, err := regular.OpenIn(p.dir.Root(), train.MetricsFile, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	in := bufio.NewReaderSize(io.NewSectionReader(f, from, math.MaxInt64-from), 64<<10)
	for p.offset = from; ; {
		raw, err := in.ReadBytes('\n')
		if err == io.EOF {
			return nil // an incomplete line is read later
		}
		if err != nil {
			return err
		}
		p.offset += int64(len(raw))
		var l train.Line
		if json.Unmarshal(raw, &l) == nil && !each(&l) {
			return nil
		}
	}
}

func lineTime(l *train.Line) time.Time { return time.UnixMilli(int64(math.Round(l.Time * 1e3))) }

// points returns the points of a line, if it has any.
func points(l *train.Line, unit string) (list []mlflow.Metric) {
	at := lineTime(l)
	add := func(key string, v float64) {
		list = append(list, mlflow.Metric{Key: key, Value: v, At: at, Step: l.Update})
	}
	switch l.Event {
	case "update":
		for _, x := range []struct {
			key   string
			value *checkpoint.Float
		}{{tagLoss, l.Loss}, {tagLR, l.LR}, {tagGradNorm, l.GradNorm}} {
			if x.value != nil {
				add(x.key, float64(*x.value))
			}
		}
		if l.Scale != 0 {
			add(tagLossScale, l.Scale)
		}
		if l.Seconds > 0 {
			add(tagRate(unit), l.Rate)
			add(tagSeconds, l.Seconds)
			add(tagWait, l.Wait)
		}
	case "eval":
		for _, name := range slices.Sorted(maps.Keys(l.Metrics)) {
			add(tagEval+name, float64(l.Metrics[name]))
		}
	}
	return list
}

// sampleEvery is the interval between points of the machine, the same as in MLflow's own clients.
const sampleEvery = 10 // seconds

// Samples returns the points of the machine after the given time.
func (p *runPoints) Samples(after float64) (list []mlflow.Metric, until float64, err error) {
	samples, err := monitor.ReadSamples(p.dir)
	until = after
	for i := range samples {
		if s := &samples[i]; s.Time >= until+sampleEvery || until == 0 {
			list, until = append(list, machinePoints(s)...), s.Time
		}
	}
	return list, until, err
}

// machinePoints returns the points of one sample of the machine, named as in MLflow's own clients, and the
// memory of the process.
func machinePoints(s *monitor.Sample) (list []mlflow.Metric) {
	at := time.UnixMilli(int64(math.Round(s.Time * 1e3)))
	add := func(key string, v float64) {
		list = append(list, mlflow.Metric{Key: mlflow.System + key, Value: v, At: at, Step: s.Update})
	}
	const mega = 1e6
	add("cpu_utilization_percentage", s.MachineCPU)
	add("process_cpu_percentage", s.ProcessCPU)
	add("process_memory_usage_megabytes", float64(s.RSS)/mega)
	if s.MemoryTotal > 0 {
		used := float64(s.MemoryTotal - s.MemoryAvailable)
		add("system_memory_usage_megabytes", used/mega)
		add("system_memory_usage_percentage", 100*used/float64(s.MemoryTotal))
	}
	g := s.GPU
	if g == nil {
		return list
	}
	if g.Used != nil {
		add("gpu_0_memory_usage_megabytes", *g.Used/mega)
		if g.Total != nil && *g.Total > 0 {
			add("gpu_0_memory_usage_percentage", 100**g.Used/(*g.Total))
		}
	}
	for _, x := range []struct {
		key   string
		value *float64
	}{{"gpu_0_utilization_percentage", g.Busy}, {"gpu_0_power_usage_watts", g.Watts}, {"gpu_0_temperature_celsius", g.Celsius}} {
		if x.value != nil {
			add(x.key, *x.value)
		}
	}
	return list
}
