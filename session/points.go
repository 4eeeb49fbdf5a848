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

// Names of figures, in whatever form other programs get them.
const (
	tagLoss      = "train/loss"
	tagLR        = "train/learning_rate"
	tagGradNorm  = "train/grad_norm"
	tagLossScale = "train/loss_scale"
	tagSeconds   = "speed/update_seconds"
	tagWait      = "speed/data_wait_seconds"
	tagEval      = "eval/" // before the name of a metric
)

// tagRate is the name of the units per second.
func tagRate(unit string) string { return "speed/" + unit + "_per_second" }

// runPoints are the points of the curves of a run, read from its files while they grow.
type runPoints struct {
	dir    *rundir.Dir
	unit   string
	offset int64 // after the last line of metrics.jsonl that was read
}

// began is when the run's first line was written, or else.
func (p *runPoints) began(or time.Time) time.Time {
	first := time.Time{}
	ahead := runPoints{dir: p.dir}
	_ = ahead.lines(0, func(l *train.Line) bool { // what cannot be read is told by Metrics
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

// Metrics are the points of the next lines.
func (p *runPoints) Metrics(most int) (list []mlflow.Metric, err error) {
	err = p.lines(p.offset, func(l *train.Line) bool {
		list = append(list, points(l, p.unit)...)
		return len(list) < most
	})
	return list, err
}

// lines gives the whole lines after an offset to each, until that returns false.
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
			return nil // a line that is not whole yet is read later
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

// points are those of a line, if it has any.
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

// sampleEvery is how far apart points of the machine are, as those of MLflow's own clients.
const sampleEvery = 10 // seconds

// Samples are the points of the machine after a time.
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

// machinePoints are those of a look at the machine, with the names that MLflow's own
// clients give them, and the memory of the process.
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
