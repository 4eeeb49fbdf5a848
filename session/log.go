package session

import (
	"fmt"
	"slices"
	"time"

	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/monitor"
	"github.com/snug-ml/snug/train"
	"github.com/snug-ml/snug/train/checkpoint"
	"github.com/snug-ml/snug/train/remote"
)

// note keeps an event for the log in the run directory. Events that arrive before the run owns the directory
// are held back until it does.
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

// logged returns the log line of an event, if it has one.
func logged(e Event) (l monitor.LogLine, ok bool) {
	l.Level = monitor.LevelInfo
	switch e := e.(type) {
	case Info:
		l.Text = e.Text
	case Begins:
		l.Text = fmt.Sprintf("%s, %s on %s, %s; %d parameters; %s planned, of which the arena %s", e.Config.System, e.Precision, e.Computer(), size.Of(e.Threads, "thread"),
			e.Report.Parameters, size.Bytes(e.Report.Total), size.Bytes(e.Report.Arena))
	case train.Step:
		l.Update = e.Update
		l.Text = e.Notice()
		if !e.Skipped {
			l.Level = monitor.LevelWarning // a step with a notice that was not skipped is a spike
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
		l.Update, l.Text = e.Update, e.String()
		if slices.Contains([]checkpoint.EventKind{checkpoint.Failed, checkpoint.Bad, checkpoint.Warning, checkpoint.Retry}, e.Kind) {
			l.Level = monitor.LevelWarning
		}
	case remote.UploadEvent:
		l.Text = e.String()
		if e.Kind != remote.Uploaded {
			l.Level = monitor.LevelWarning
		}
	}
	return l, l.Text != ""
}
