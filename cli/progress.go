package cli

import (
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/session"
	"github.com/snug-ml/snug/train"
)

// progress shows the updates of a run: on a terminal as one line that is rewritten, otherwise as log lines.
type progress struct {
	*app
	run      session.Begins
	terminal bool
	sampler  *device.Sampler
	status   string // what the store is doing
	live     bool   // the screen shows a line that will be rewritten
	last     time.Time
	rate     float64 // updates per second, smoothed
	tokens   float64 // units per second, smoothed
	flops    float64 // matmul FLOPs per second, smoothed
}

func newProgress(a *app, run session.Begins) *progress {
	return &progress{app: a, run: run, sampler: device.NewSampler(), terminal: a.out.live}
}

// step shows an update.
func (p *progress) step(s train.Step) {
	took := s.Took.Seconds()
	const keep = 0.9
	if p.rate == 0 {
		p.rate, p.tokens, p.flops = 1/took, float64(s.NewTokens)/took, s.FLOPs/took
	} else {
		p.rate = keep*p.rate + (1-keep)/took
		p.tokens = keep*p.tokens + (1-keep)*float64(s.NewTokens)/took
		p.flops = keep*p.flops + (1-keep)*s.FLOPs/took
	}
	if text := s.Notice(); text != "" {
		p.print(text)
	}
	switch {
	case p.terminal && (time.Since(p.last) > 100*time.Millisecond || s.Update == s.Total):
		p.last = time.Now()
		p.rewrite(p.line(s))
	case !p.terminal && s.Log:
		p.print(p.line(s))
	}
}

// line returns the progress line.
func (p *progress) line(s train.Step) string {
	eta := time.Duration(float64(s.Total-s.Update)/p.rate) * time.Second
	l := fmt.Sprintf("%*d/%d  loss %.4f  lr %.2e  %s  %s %s/s", len(fmt.Sprint(s.Total)), s.Update, s.Total, s.Loss, s.LR, pace(p.rate), size.Count(p.tokens), shortUnit(p.run.Model.Unit))
	if f := p.run.Share(p.run.Report, p.flops); f > 0 {
		l += fmt.Sprintf("  %.0f%% of %s", 100*f, p.run.Report.Speed.PeakName)
	}
	used := p.sampler.Sample().RSS
	card, ok := p.run.Look()
	if ok && card.Used >= 0 {
		used = card.Used
	}
	l += fmt.Sprintf("  mem %s/%s", size.Bytes(used), size.Bytes(p.run.Report.Total))
	if text := card.String(); ok && text != "" {
		l += "  " + text
	}
	if s.Scale > 0 {
		l += fmt.Sprintf("  scale %g", s.Scale)
	}
	if p.status != "" {
		l += "  " + p.status
	}
	return l + "  eta " + shortDuration(eta)
}

// pace writes updates per second, or seconds per update if they take longer than one.
func pace(rate float64) string {
	if rate < 1 {
		return fmt.Sprintf("%.2f s/it", 1/rate)
	}
	return fmt.Sprintf("%.2f it/s", rate)
}

// print writes a permanent line.
func (p *progress) print(line string) {
	p.clear()
	p.printf("%s\n", line)
}

func (p *progress) rewrite(line string) {
	if w := p.out.width(); w > 0 {
		line = string([]rune(line)[:min(w-1, utf8.RuneCountInString(line))])
	}
	p.out.steer("\r\x1b[K")
	p.printf("%s", line)
	p.live = true
}

func (p *progress) clear() {
	if p.live {
		p.out.steer("\r\x1b[K")
		p.live = false
	}
}

// close leaves the last line on the screen.
func (p *progress) close() {
	if p.live {
		p.printf("\n")
		p.live = false
	}
	_ = p.sampler.Close() // files of /proc, read only
}
