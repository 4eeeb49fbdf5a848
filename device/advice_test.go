package device

import (
	"strings"
	"testing"
)

// base is a run that uses its device well.
func base() Summary {
	s := Summary{
		Device: "EPYC", Samples: 10, MemoryTotal: 16 * gib, Processors: 2, BatchSize: 8, Accumulation: 4, DataWorkers: 1, Used: BF16, Best: BF16,
	}
	s.Utilization.Add(95)
	s.Memory.Add(8 * gib)
	s.ProcessCPU.Add(190)
	s.MachineCPU.Add(96)
	return s
}

func TestAdvise(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Summary)
		do     []string // parts of what must be advised, in order
		why    string   // part of the first reason
	}{
		{"fine", func(*Summary) {}, []string{"change nothing"}, "used to 95 %"},
		{"too few samples", func(s *Summary) { s.Samples = 2 }, nil, ""},
		{"input", func(s *Summary) { s.DataWait = 0.3; s.Utilization = Range{Mean: 40} }, []string{"data.workers above 1"}, "waited for input 30 %"},
		{"saving", func(s *Summary) { s.SaveWait = 0.1 }, []string{"training.save_steps"}, "checkpoints 10 %"},
		{"others", func(s *Summary) { s.MachineCPU.Mean = 99; s.ProcessCPU.Mean = 100 }, []string{"run alone"}, "1.0 of 2 processors"},
		{"precision", func(s *Summary) { s.Used = FP32 }, []string{"mixed_precision: bf16"}, "EPYC multiplies bf16 faster"},
		{"starved", func(s *Summary) { s.Utilization.Mean = 30 }, []string{"batch_size: 16 and training.gradient_accumulation_steps: 2"}, "used to 30 %"},
		{"starved, odd accumulation", func(s *Summary) { s.Utilization.Mean = 30; s.Accumulation = 1 }, []string{"batch_size: 16, or"}, "peaked at 50 %"},
		{"roomy", func(s *Summary) { s.Utilization.Mean = 70; s.Memory.Peak = 2 * gib }, []string{"batch_size: 16"}, "peaked at 12 %"},
		{"planned", func(s *Summary) {
			s.Utilization.Mean = 30
			s.Next = &NextBatch{BatchSize: 12, Accumulation: 4, Bytes: 9 * gib, Capacity: 14 * gib, Fits: true}
		}, []string{"batch_size: 12, or"}, "by the plan 9 GiB of 14 GiB"},
		{"planned, does not fit", func(s *Summary) {
			s.Utilization.Mean = 30
			s.Next = &NextBatch{BatchSize: 16, Accumulation: 4, Bytes: 17 * gib, Capacity: 14 * gib}
		}, []string{"leave training.batch_size"}, "a batch of 16 needs 17"},
		{"starved by others", func(s *Summary) {
			s.Utilization.Mean, s.ProcessCPU.Mean, s.MachineCPU.Mean, s.Memory.Peak = 40, 80, 99, gib
		}, []string{"run alone"}, "1.2 of 2 processors"},
		{"crowded", func(s *Summary) { s.Memory.Peak = 15.5 * gib }, []string{"batch_size: 4 and training.gradient_accumulation_steps: 8"}, "97 % of 16 GiB"},
		{"crowded, one sequence", func(s *Summary) { s.Memory.Peak = 15.5 * gib; s.BatchSize = 1 }, []string{"gradient_checkpointing"}, "97 %"},
		{"two things", func(s *Summary) { s.DataWait = 0.2; s.Memory.Peak = 15.5 * gib }, []string{"data.workers", "batch_size: 4"}, "20 %"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := base()
			c.change(&s)
			got := Advise(s)
			if len(got) != len(c.do) {
				t.Fatalf("%d pieces of advice: %+v", len(got), got)
			}
			for i, a := range got {
				if !strings.Contains(a.Do, c.do[i]) {
					t.Errorf("advice %q, want %q in it", a.Do, c.do[i])
				}
			}
			if len(got) > 0 && !strings.Contains(got[0].Because, c.why) {
				t.Errorf("because %q, want %q in it", got[0].Because, c.why)
			}
		})
	}
}

// A mean of several values has their weight.
func TestRange(t *testing.T) {
	var r Range
	r.Add(10)
	r.AddMean(40, 2)
	if r.Mean != 30 || r.Peak != 40 {
		t.Errorf("%+v", r)
	}
}

// Advice about a machine without a run.
func TestAdviseMachine(t *testing.T) {
	for _, c := range []struct {
		samples         int
		busy            float64
		left, total     int64
		does, doesToo   string
		lines           int
		processorsTotal int
	}{
		{2, 100, 0, 100, "", "", 0, 4},
		{5, 10, 50, 100, "", "", 0, 4},
		{5, 50, 50, 100, "hardware.threads: 2", "", 1, 4},
		{5, 100, 5, 100, "hardware.threads: 1", "hardware.memory_budget", 2, 2},
		{5, 100, 0, 0, "", "", 0, 0},
	} {
		got := AdviseMachine(c.samples, c.busy, c.processorsTotal, c.left, c.total)
		if len(got) != c.lines || c.lines > 0 && !strings.Contains(got[0].Do, c.does) || c.lines > 1 && !strings.Contains(got[1].Do, c.doesToo) {
			t.Errorf("%+v: %+v", c, got)
		}
	}
}
