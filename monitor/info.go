package monitor

import (
	"encoding/json"
	"time"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/train/checkpoint"
)

// InfoFile describes a run, and how it ended.
const InfoFile = "run.json"

// Info is what a session knows about its run before the first update, and how it ended.
type Info struct {
	Snug string    `json:"snug"` // version
	Run  string    `json:"run"`  // identity
	Host string    `json:"host,omitempty"`
	PID  int       `json:"pid,omitempty"`
	At   time.Time `json:"started"` // of this session
	From int64     `json:"from"`    // updates that earlier sessions did

	System string `json:"system"`
	Preset string `json:"preset,omitempty"`
	Phase  string `json:"phase,omitempty"`

	Device     string   `json:"device"`
	Card       bool     `json:"card,omitempty"` // the device is a card
	Threads    int      `json:"threads"`
	Processors int      `json:"processors"` // that the machine has
	Arithmetic string   `json:"arithmetic"`
	Notes      []string `json:"notes,omitempty"` // of the choice of the device
	// Precision is used because of Reason; Best is the device's fastest.
	Precision device.Precision `json:"precision"`
	Reason    string           `json:"precision_reason,omitempty"`
	Best      device.Precision `json:"precision_best,omitempty"`

	Parameters int64 `json:"parameters"`
	Trained    int64 `json:"parameters_trained"`

	Updates      int64  `json:"updates"` // of the whole run
	Warmup       int64  `json:"warmup_updates"`
	BatchSize    int    `json:"batch_size"`
	Accumulation int    `json:"gradient_accumulation_steps"`
	Unit         string `json:"unit"` // of the data: tokens, examples, frames
	UnitsPer     int64  `json:"units_per_update"`
	DataWorkers  int    `json:"data_workers"`

	// Monitored is the metric that decides which checkpoint is best.
	Monitored      string     `json:"monitored_metric,omitempty"`
	HigherIsBetter bool       `json:"higher_is_better,omitempty"`
	Baselines      []Baseline `json:"baselines,omitempty"`

	Plan Plan `json:"plan"`

	// Settings are the effective settings by key, as text.
	Settings map[string]string `json:"settings,omitempty"`

	End *End `json:"end,omitempty"` // nil: it is running, or died
}

// Baseline is the metric of a simpler model.
type Baseline struct {
	Name  string           `json:"name"`
	Value checkpoint.Float `json:"value"`
}

// Plan is what the run needs according to its plan.
type Plan struct {
	Arena int64 `json:"arena_bytes"`
	Total int64 `json:"planned_total_bytes"`
	// Capacity is the memory available for it, less what it may not use; 0: unknown.
	Capacity   int64       `json:"capacity_bytes"`
	Components []Component `json:"components,omitempty"`
	Recompute  string      `json:"gradient_checkpointing,omitempty"`
	// Seconds is the time of an update, Rate the units of the data per second.
	Seconds float64 `json:"update_seconds,omitempty"`
	Rate    float64 `json:"units_per_second,omitempty"`
	Note    string  `json:"speed_note,omitempty"` // where the speed comes from
	// FLOPs is the work of an update, Peak the speed that shares refer to; 0: unknown.
	FLOPs    float64 `json:"update_flops,omitempty"`
	Peak     float64 `json:"peak_flops_per_second,omitempty"`
	PeakName string  `json:"peak_name,omitempty"`
	// Next is the plan with the next larger micro-batch; nil: none was made.
	Next *device.NextBatch `json:"next_batch,omitempty"`
}

// Component is a part of the planned memory.
type Component struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
	Arena bool   `json:"arena,omitempty"`
}

// End says how a session ended.
type End struct {
	At     time.Time `json:"at"`
	State  State     `json:"state"` // Done, Stopped or Failed
	Update int64     `json:"update"`
	Text   string    `json:"text,omitempty"` // why, where it failed
}

// cleaned makes all its texts printable.
func (i *Info) cleaned() {
	for _, s := range []*string{
		&i.Snug, &i.Run, &i.Host, &i.System, &i.Preset, &i.Phase, &i.Device, &i.Arithmetic, (*string)(&i.Precision), &i.Reason, (*string)(&i.Best),
		&i.Unit, &i.Monitored, &i.Plan.Recompute, &i.Plan.Note, &i.Plan.PeakName,
	} {
		*s = Printable(*s)
	}
	for n := range i.Notes {
		i.Notes[n] = Printable(i.Notes[n])
	}
	for n := range i.Baselines {
		i.Baselines[n].Name = Printable(i.Baselines[n].Name)
	}
	for n := range i.Plan.Components {
		i.Plan.Components[n].Name = Printable(i.Plan.Components[n].Name)
	}
	settings := make(map[string]string, len(i.Settings))
	for k, v := range i.Settings {
		settings[Printable(k)] = Printable(v)
	}
	i.Settings = settings
	if i.End != nil {
		i.End.Text, i.End.State = Printable(i.End.Text), State(Printable(string(i.End.State)))
	}
}

// readInfo reads the text of an [InfoFile].
func readInfo(text []byte) (*Info, error) {
	var i Info
	if err := json.Unmarshal(text, &i); err != nil {
		return nil, err
	}
	i.cleaned()
	return &i, nil
}
