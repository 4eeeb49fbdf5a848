package session

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/monitor"
	"github.com/snug-ml/snug/train"
	"github.com/snug-ml/snug/train/checkpoint"
	"github.com/snug-ml/snug/train/remote"
)

// note keeps an event for the log in the run directory; those that come before the
// directory is the run's are kept until then.
func (r *run) note(e Event) {
	l, ok := logged(e)
	if !ok {
		return
	}
	l.Time = float64(time.Now().UnixMilli()) / 1e3
	if r.telemetry == nil {
		r.early = append(r.early, l)
		return
	}
	r.telemetry.say(l)
}

// logged is the line of an event, if it has one.
func logged(e Event) (l monitor.LogLine, ok bool) {
	l.Level = monitor.LevelInfo
	switch e := e.(type) {
	case Info:
		l.Text = e.Text
	case Begins:
		l.Text = fmt.Sprintf("%s, %s on %s, %d threads; %d parameters; %s planned, of which the arena %s", e.Config.System, e.Precision, e.Computer(), e.Threads,
			e.Report.Parameters, size.Bytes(e.Report.Total), size.Bytes(e.Report.Arena))
	case train.Step:
		l.Update = e.Update
		switch {
		case e.Skipped:
			l.Text = fmt.Sprintf("update %d skipped: a gradient is not finite; loss scale now %g", e.Update, e.Scale)
		case max(e.LossZ, e.NormZ) > train.SpikeZ:
			l.Level = monitor.LevelWarning
			l.Text = fmt.Sprintf("update %d: spike: loss %.4f (z %.1f), gradient norm %.3g (z %.1f)", e.Update, e.Loss, e.LossZ, e.GradNorm, e.NormZ)
		}
	case train.Evaluated:
		l.Update, l.Text = e.Update, fmt.Sprintf("evaluation after update %d: %s %.4g", e.Update, e.Monitor.Name, e.Metrics[e.Monitor.Name])
		if e.Best {
			l.Text += " (best)"
		}
	case train.Warned:
		l.Level, l.Update, l.Text = monitor.LevelWarning, e.Update, e.Text
	case train.Ended:
		l.Level, l.Update, l.Text = monitor.LevelError, e.Warning.Update, e.Warning.String()
	case checkpoint.Event:
		l.Update, l.Text = e.Update, saveText(e)
		if slices.Contains([]checkpoint.EventKind{checkpoint.Failed, checkpoint.Bad, checkpoint.Warning, checkpoint.Retry}, e.Kind) {
			l.Level = monitor.LevelWarning
		}
	case remote.UploadEvent:
		if e.Kind == remote.Uploaded {
			l.Text = fmt.Sprintf("checkpoint %s uploaded", e.Checkpoint)
		} else {
			l.Level, l.Text = monitor.LevelWarning, fmt.Sprintf("checkpoint %s is not uploaded yet: %v", e.Checkpoint, e.Err)
		}
	}
	return l, l.Text != ""
}

// saveText is the line of an event of the checkpoint store.
func saveText(e checkpoint.Event) string {
	if e.Kind == checkpoint.Saved {
		return fmt.Sprintf("checkpoint %s saved: %s in %.1f s", filepath.Base(e.Path), size.Bytes(e.Bytes), e.Took.Seconds())
	}
	text := []string{"checkpoint"}
	if e.Path != "" {
		text = append(text, filepath.Base(e.Path))
	}
	out := strings.Join(append(text, string(e.Kind)), " ")
	if e.Err != nil {
		out += fmt.Sprintf(": %v", e.Err)
	}
	return out
}
