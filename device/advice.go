package device

import (
	"fmt"

	"github.com/snug-ml/snug/internal/size"
)

// Range is the mean and the largest value of a series.
type Range struct {
	Mean, Peak float64
	n          int
}

// Add adds a value.
func (r *Range) Add(x float64) { r.AddMean(x, 1) }

// AddMean adds the mean of n values.
func (r *Range) AddMean(x float64, n int) {
	if r.n == 0 || x > r.Peak {
		r.Peak = x
	}
	r.n += n
	r.Mean += (x - r.Mean) * float64(n) / float64(r.n)
}

// Summary sums up the samples of a run, with what the training loop knows about itself.
type Summary struct {
	Samples int

	Device      string  // name for printing
	Utilization Range   // percent of the device: of its threads on a CPU, of its time on a GPU
	Memory      Range   // bytes in use: of this process, or of the GPU
	MemoryTotal int64   // bytes available to it
	ProcessCPU  Range   // percent of one processor
	MachineCPU  Range   // percent of all processors
	Processors  int     // of the machine
	DataWait    float64 // share of the run's time in which the step waited for input, 0 to 1
	SaveWait    float64 // share in which it waited for a checkpoint

	BatchSize, Accumulation, DataWorkers int       // as configured
	Used, Best                           Precision // what the run computes in, and the device's fastest
	// Next is the plan with the next larger micro-batch; nil: there is none, and what
	// fits is estimated from the memory in use.
	Next *NextBatch
}

// NextBatch is what a run would need with the next larger micro-batch, by its plan.
type NextBatch struct {
	BatchSize    int   `json:"batch_size"`
	Accumulation int   `json:"gradient_accumulation_steps"`
	SameUpdate   bool  `json:"same_update"` // as many rows an update as now
	Bytes        int64 `json:"planned_total_bytes"`
	Capacity     int64 `json:"capacity_bytes"`
	Fits         bool  `json:"fits"`
}

// Advice is one thing to do and the measurement behind it.
type Advice struct {
	Do      string `json:"do"`
	Because string `json:"because"`
}

// Limits of the rules, in percent.
const (
	waiting     = 5  // of the time: more waiting than this is worth removing
	idle        = 50 // utilization below which the device is starved
	busy        = 80 // utilization above which it is well used
	roomy       = 30 // memory below which the micro-batch may double without checking
	crowded     = 90 // memory above which the next surprise does not fit
	intruders   = 25 // of the machine's processors busy with other programs
	enoughToSay = 3  // samples
)

// Advise turns a summary into advice, the most rewarding first. It only says what the figures
// show: no advice without samples, and a single line if there is nothing to gain.
func Advise(s Summary) []Advice {
	if s.Samples < enoughToSay {
		return nil
	}
	var all []Advice
	add := func(do, because string, args ...any) {
		all = append(all, Advice{do, fmt.Sprintf(because, args...)})
	}
	util := s.Utilization.Mean
	mem := 0.0
	if s.MemoryTotal > 0 {
		mem = 100 * s.Memory.Peak / float64(s.MemoryTotal)
	}

	if w := 100 * s.DataWait; w > waiting {
		add(fmt.Sprintf("raise data.workers above %d, or prepare the data once beforehand (snug data prepare)", s.DataWorkers),
			"the step waited for input %.0f %% of the time", w)
	}
	if w := 100 * s.SaveWait; w > waiting {
		add("save less often (training.save_steps) or to a faster disk", "the step waited for checkpoints %.0f %% of the time", w)
	}
	if s.Processors > 0 {
		others := s.MachineCPU.Mean - s.ProcessCPU.Mean/float64(s.Processors)
		if others > intruders {
			add("run alone, or lower hardware.threads to the processors that are free",
				"other programs kept %.1f of %s busy", others/100*float64(s.Processors), size.Of(s.Processors, "processor"))
		}
	}
	if s.Best != "" && s.Best != FP32 && s.Used == FP32 {
		add(fmt.Sprintf("set training.mixed_precision: %s", s.Best), "%s multiplies %s faster than the fp32 in use", s.Device, s.Best)
	}
	crowdedOut := s.Processors > 0 && s.MachineCPU.Mean-s.ProcessCPU.Mean/float64(s.Processors) > intruders
	starved := util < idle && 100*s.DataWait <= waiting && 100*s.SaveWait <= waiting && !crowdedOut
	roomyNow := util < busy && mem < roomy && mem > 0 && !crowdedOut
	switch {
	case mem > crowded:
		if s.BatchSize > 1 && s.BatchSize%2 == 0 {
			add(fmt.Sprintf("set training.batch_size: %d and training.gradient_accumulation_steps: %d (the same update in smaller pieces)",
				s.BatchSize/2, s.Accumulation*2), "memory peaked at %.0f %% of %s", mem, size.Bytes(s.MemoryTotal))
		} else {
			add("set training.gradient_checkpointing: selective or full", "memory peaked at %.0f %% of %s", mem, size.Bytes(s.MemoryTotal))
		}
	case (starved || roomyNow) && s.Next != nil && !s.Next.Fits:
		add("leave training.batch_size as it is, or train with training.gradient_checkpointing: selective to make room",
			"%s was used to %.0f %%, but by the plan a batch of %d needs %s of %s", s.Device, util, s.Next.BatchSize, size.Bytes(s.Next.Bytes), size.Bytes(s.Next.Capacity))
	case starved || roomyNow:
		because := fmt.Sprintf("%s was used to %.0f %%", s.Device, util)
		if mem > 0 {
			because += fmt.Sprintf(", memory peaked at %.0f %% of %s", mem, size.Bytes(s.MemoryTotal))
		}
		next := s.Next
		if next == nil {
			next = &NextBatch{BatchSize: s.BatchSize * 2, Accumulation: s.Accumulation}
			if s.Accumulation > 1 && s.Accumulation%2 == 0 {
				next.Accumulation, next.SameUpdate = s.Accumulation/2, true
			}
		} else {
			because += fmt.Sprintf(", and by the plan %s of %s are needed then", size.Bytes(next.Bytes), size.Bytes(next.Capacity))
		}
		if next.SameUpdate {
			add(fmt.Sprintf("set training.batch_size: %d and training.gradient_accumulation_steps: %d (the same update in larger pieces)",
				next.BatchSize, next.Accumulation), "%s", because)
		} else {
			add(fmt.Sprintf("set training.batch_size: %d, or train a larger model", next.BatchSize), "%s", because)
		}
	}
	if len(all) == 0 {
		add("change nothing", "%s was used to %.0f %%, memory peaked at %.0f %% of %s, nothing waited", s.Device, util, mem, size.Bytes(s.MemoryTotal))
	}
	return all
}

// AdviseMachine returns advice before anything trains on a machine, from how busy all its
// processors were on average, and how much of its memory is left; none if nothing is in the way.
func AdviseMachine(samples int, busyPercent float64, processors int, available, total int64) []Advice {
	if samples < enoughToSay {
		return nil
	}
	var all []Advice
	if busyPercent > intruders && processors > 0 {
		taken := busyPercent / 100 * float64(processors)
		all = append(all, Advice{
			fmt.Sprintf("train when they are done, or with hardware.threads: %d", max(1, processors-int(taken+0.5))),
			fmt.Sprintf("programs keep %.1f of %s busy", taken, size.Of(processors, "processor")),
		})
	}
	if total > 0 && float64(available) < (100-crowded)/100.0*float64(total) {
		all = append(all, Advice{
			"end what holds it, or bound a run with hardware.memory_budget",
			fmt.Sprintf("%s of %s of memory are left", size.Bytes(available), size.Bytes(total)),
		})
	}
	return all
}
