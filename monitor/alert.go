package monitor

import (
	"fmt"
	"strconv"
	"time"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/device/nvml"
	"github.com/snug-ml/snug/internal/shell"
	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/train"
)

// Alert is something that is or looks wrong, with its figures and what to do about it.
type Alert struct {
	Kind  AlertKind `json:"kind"`
	Level Level     `json:"level"`
	// Update and Time are those of the newest occurrence, if any, Count is the number of
	// occurrences.
	Update int64     `json:"update,omitempty"`
	Time   time.Time `json:"time,omitzero"`
	Count  int       `json:"count,omitempty"`
	Text   string    `json:"text"`
	Do     string    `json:"do,omitempty"`
}

// AlertKind says what is wrong.
type AlertKind string

// The kinds of alerts.
const (
	AlertSpike     AlertKind = "spike"        // loss or gradient norm, 6 sigma over the last 128 updates
	AlertNotFinite AlertKind = "not_a_number" // a loss or gradient norm
	AlertStuck     AlertKind = "stuck"        // no update for StuckAfter
	AlertDied      AlertKind = "died"         // nothing written for DiedAfter
	AlertFailed    AlertKind = "failed"       // it ended with an error
	AlertHeat      AlertKind = "heat"         // clocks lowered by heat or the power supply
	AlertPowerCap  AlertKind = "power_cap"    // clocks lowered by the power cap
	AlertSkipped   AlertKind = "skipped"      // fp16 updates
	AlertMemory    AlertKind = "memory"       // hardly any left
	AlertLearning  AlertKind = "learning"     // nothing is learned, or what was learned is lost
	AlertWarning   AlertKind = "warning"      // the newest warning of the run itself
	AlertSaving    AlertKind = "saving"       // checkpoints could not be saved
)

// Limits of alerts.
const (
	skippedShare = 0.05 // of the updates after warm-up
	skippedLeast = 40   // updates after warm-up
	heatShare    = 0.05 // of the samples of the last ten minutes
	capShare     = 0.05
	fullShare    = 0.95 // of the memory
)

// alerts returns the alerts of a run, the worst first.
func (r *Run) alerts(s *Snapshot) (out []Alert) {
	add := func(a ...Alert) { out = append(out, a...) }
	switch s.State {
	case Failed:
		add(Alert{Kind: AlertFailed, Level: LevelError, Update: s.Update, Text: "the run failed: " + s.Why})
	case Died:
		add(Alert{Kind: AlertDied, Level: LevelError, Update: s.Update, Text: "the run died: " + s.Why, Do: "continue with snug train --resume --out " + shell.Path(s.Path)})
	case Stuck, Silent:
		add(Alert{Kind: AlertStuck, Level: LevelError, Update: s.Update, Text: s.Why})
	}
	add(r.notFinite()...)
	add(r.memoryFull(s)...)
	add(r.slowed()...)
	add(r.skippedOften(s)...)
	add(r.spikes(s)...)
	add(r.told()...)
	return out
}

// setting returns the configured value of a key, in parentheses, if it is known.
func setting(i *Info, key string) string {
	if v := i.Settings[key]; v != "" {
		return fmt.Sprintf("%s (now %s)", key, v)
	}
	return key
}

func (r *Run) notFinite() []Alert {
	a := Alert{Kind: AlertNotFinite, Level: LevelError}
	var last *row
	for _, i := range r.curve.odd {
		if x := &r.curve.rows[i]; !x.skipped && (!finite(x.loss) || x.normed && !finite(x.norm)) {
			a.Count, last = a.Count+1, x
		}
	}
	if last == nil {
		return nil
	}
	a.Update, a.Time = last.update, at(last.time)
	a.Text = fmt.Sprintf("update %d: loss %v, gradient norm %v", last.update, last.loss, last.norm)
	a.Do = "a lower training.learning_rate, or training.mixed_precision: fp32"
	return []Alert{a}
}

// spikes returns the spikes that the run itself detected: it sees every update, while its
// log has only some. Detection starts after 64 updates.
func (r *Run) spikes(s *Snapshot) []Alert {
	a := Alert{Kind: AlertSpike, Level: LevelWarning}
	var last *row
	for _, i := range r.curve.odd {
		if x := &r.curve.rows[i]; max(x.lossZ, x.normZ) > train.SpikeZ {
			a.Count, last = a.Count+1, x
		}
	}
	if last == nil {
		return nil
	}
	a.Update, a.Time = last.update, at(last.time)
	a.Text = fmt.Sprintf("update %d: loss %.4g (%.1f sigma over the last 128 updates), gradient norm %.3g (%.1f sigma)", last.update, last.loss, last.lossZ, last.norm, last.normZ)
	if a.Count > 1 {
		a.Text = fmt.Sprintf("%s, the last at %s", size.Of(a.Count, "spike"), a.Text)
	}
	if s.Update-a.Update > 1000 && !s.State.Over() {
		a.Level = LevelInfo
	}
	clip := "1 for " + setting(&s.Info, "training.max_grad_norm")
	if v, err := strconv.ParseFloat(s.Info.Settings["training.max_grad_norm"], 64); err == nil && v > 0 && v <= 1 {
		clip = "a lower " + setting(&s.Info, "training.max_grad_norm")
	}
	a.Do = fmt.Sprintf("if the loss does not come back: a lower %s, or %s", setting(&s.Info, "training.learning_rate"), clip)
	return []Alert{a}
}

func (r *Run) skippedOften(s *Snapshot) []Alert {
	if s.Info.Precision != device.FP16 {
		return nil
	}
	var last *row
	n, after := 0, s.Update-s.Info.Warmup
	for _, i := range r.curve.odd {
		if x := &r.curve.rows[i]; x.skipped && x.update > s.Info.Warmup {
			n, last = n+1, x
		}
	}
	if after < skippedLeast || float64(n) <= skippedShare*float64(after) {
		return nil
	}
	return []Alert{{
		Kind: AlertSkipped, Level: LevelWarning, Update: last.update, Time: at(last.time), Count: n,
		Text: fmt.Sprintf("%d of %s after warm-up were skipped (%.0f %%): their gradients were not finite in fp16", n, size.Of(after, "update"), 100*float64(n)/float64(after)),
		Do:   fmt.Sprintf("a lower %s, or training.mixed_precision: bf16 where the device has it, else fp32", setting(&s.Info, "training.learning_rate")),
	}}
}

// slowed reports clocks that were lowered in the last ten minutes of samples.
func (r *Run) slowed() (out []Alert) {
	var looks, capped, hot, celsius float64
	var why nvml.Throttle
	var capWatts float64
	var last Sample
	for i := len(r.machine) - 1; i >= 0 && looks < recentSamples; i-- {
		x := &r.machine[i]
		if x.GPU == nil {
			continue
		}
		n := float64(x.looks())
		looks, capped, hot = looks+n, capped+n*x.GPU.PowerCapped, hot+n*x.GPU.Slowed
		why |= x.GPU.Throttle
		if x.GPU.Celsius != nil {
			celsius = max(celsius, *x.GPU.Celsius)
		}
		if x.GPU.Cap != nil {
			capWatts = *x.GPU.Cap
		}
		if last.GPU == nil {
			last = *x
		}
	}
	if looks < 3 {
		return nil
	}
	if hot > heatShare*looks {
		out = append(out, Alert{
			Kind: AlertHeat, Level: LevelWarning, Update: last.Update, Time: at(last.Time),
			Text: fmt.Sprintf("%s held the card's clocks down %.0f %% of the last %.0f s, at up to %.0f °C", why&nvml.Slow&^nvml.PowerCap, 100*hot/looks, looks, celsius),
			Do:   "cool the card: its fans, the air around it, and what else runs on the machine",
		})
	}
	if capped > capShare*looks {
		out = append(out, Alert{
			Kind: AlertPowerCap, Level: LevelInfo, Update: last.Update, Time: at(last.Time),
			Text: fmt.Sprintf("the power cap of %.0f W held the card's clocks down %.0f %% of the last %.0f s: normal for a card that is well used, as a T4 at 70 W", capWatts, 100*capped/looks, looks),
		})
	}
	return out
}

func (r *Run) memoryFull(s *Snapshot) []Alert {
	m := s.Memory
	if m.Limit == 0 || float64(m.Peak) <= fullShare*float64(m.Limit) {
		return nil
	}
	a := Alert{Kind: AlertMemory, Level: LevelWarning, Update: s.Update, Text: fmt.Sprintf("memory peaked at %s of %s (%s planned)", size.Bytes(m.Peak), size.Bytes(m.Limit), size.Bytes(m.Planned))}
	a.Do = "snug plan shows every part; a smaller training.batch_size with more training.gradient_accumulation_steps is the same update"
	if s.Info.BatchSize <= 1 {
		a.Do = "training.gradient_checkpointing: selective, or full"
	}
	return []Alert{a}
}

// told returns the run's own warnings about learning and saving, the newest of each.
func (r *Run) told() (out []Alert) {
	var learning, warning, saving *Alert
	for _, n := range r.curve.notes {
		switch {
		case n.event == "trouble":
			learning = &Alert{Kind: AlertLearning, Level: LevelError, Update: n.update, Time: at(n.time), Text: n.text}
		case n.event == "warning":
			warning = &Alert{Kind: AlertWarning, Level: LevelWarning, Update: n.update, Time: at(n.time), Text: n.text}
		case n.event == "checkpoint" && failedSave(n.text):
			count := 1
			if saving != nil {
				count += saving.Count
			}
			saving = &Alert{Kind: AlertSaving, Level: LevelWarning, Update: n.update, Time: at(n.time), Count: count, Text: "checkpoint " + n.text}
		}
	}
	for _, a := range []*Alert{learning, warning, saving} {
		if a != nil {
			out = append(out, *a)
		}
	}
	return out
}
