package cli

import (
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/train"
	"github.com/snug-ml/snug/train/checkpoint"
	"github.com/snug-ml/snug/train/remote"
)

// progress shows a run: a line that is rewritten on a terminal, plain log
// lines elsewhere.
type progress struct {
	r        *run
	terminal bool
	sampler  *device.Sampler

	mu     sync.Mutex
	status string // what the store is doing
	live   bool   // a line is on the screen that will be rewritten
	last   time.Time
	rate   float64 // updates per second, smoothed
	tokens float64 // units per second, smoothed
	peak   int64   // RSS, at the end
	flops  float64 // products per second, smoothed
	total  struct{ tokens, flops, seconds float64 }
}

func newProgress(r *run) *progress {
	p := &progress{r: r, sampler: device.NewSampler()}
	p.terminal = r.out.live
	return p
}

// event shows what happened.
func (p *progress) event(e train.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := e.(type) {
	case train.Step:
		p.step(e)
	case train.Evaluated:
		p.print(evalLine(e))
	case train.Warned:
		p.warning(e.Text)
	case train.Saving:
		p.print(fmt.Sprintf("update %d is not saved: %v", e.Update, e.Err))
	}
}

func (p *progress) step(s train.Step) {
	took := s.Took.Seconds()
	flops := p.r.products.update(s.Variants)
	p.total.tokens += float64(s.NewTokens)
	p.total.flops += flops
	p.total.seconds += took
	const keep = 0.9
	if p.rate == 0 {
		p.rate, p.tokens, p.flops = 1/took, float64(s.NewTokens)/took, flops/took
	} else {
		p.rate = keep*p.rate + (1-keep)/took
		p.tokens = keep*p.tokens + (1-keep)*float64(s.NewTokens)/took
		p.flops = keep*p.flops + (1-keep)*flops/took
	}
	if s.Skipped {
		p.print(fmt.Sprintf("update %d skipped: a gradient is not finite; loss scale now %g", s.Update, s.Scale))
	}
	if z := max(s.LossZ, s.NormZ); z > 6 {
		p.print(fmt.Sprintf("update %d: spike: loss %.4f (z %.1f), gradient norm %.3g (z %.1f)", s.Update, s.Loss, s.LossZ, s.GradNorm, s.NormZ))
	}
	switch {
	case p.terminal && (time.Since(p.last) > 100*time.Millisecond || s.Update == s.Total):
		p.last = time.Now()
		p.rewrite(p.line(s))
	case !p.terminal && s.Log:
		p.print(p.line(s))
	}
}

// line is the progress line.
func (p *progress) line(s train.Step) string {
	eta := time.Duration(float64(s.Total-s.Update)/p.rate) * time.Second
	l := fmt.Sprintf("%*d/%d  loss %.4f  lr %.2e  %.2f it/s  %s %s/s", len(fmt.Sprint(s.Total)), s.Update, s.Total, s.Loss, s.LR, p.rate, count(p.tokens), shortUnit(p.r.model.Unit))
	if f := p.r.share(p.r.report, p.flops); f > 0 {
		l += fmt.Sprintf("  %.0f%% of %s", 100*f, p.r.report.Speed.PeakName)
	}
	l += fmt.Sprintf("  mem %s/%s", size.Bytes(p.sampler.Sample().RSS), size.Bytes(p.r.report.Total))
	if s.Scale > 0 {
		l += fmt.Sprintf("  scale %g", s.Scale)
	}
	if p.status != "" {
		l += "  " + p.status
	}
	return l + "  eta " + shortDuration(eta)
}

func evalLine(e train.Evaluated) string {
	var b strings.Builder
	fmt.Fprintf(&b, "evaluation after update %d: %s %s", e.Update, e.Goal.Name, figure(e.Goal, e.Goal.Name, e.Metrics[e.Goal.Name]))
	for _, k := range sortedKeys(e.Metrics) {
		if k != e.Goal.Name {
			fmt.Fprintf(&b, ", %s %s", strings.ReplaceAll(k, "_", " "), figure(e.Goal, k, e.Metrics[k]))
		}
	}
	if e.Best {
		b.WriteString(" (best)")
	}
	fmt.Fprintf(&b, " [%.1f s]", e.Took.Seconds())
	return b.String()
}

// saving shows news of the store; it is called from the store's goroutine.
func (p *progress) saving(e checkpoint.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e.Kind {
	case checkpoint.Saved:
		p.status = ""
		p.print(fmt.Sprintf("checkpoint %s saved: %s in %.1f s", base(e.Path), size.Bytes(e.Bytes), e.Took.Seconds()))
	case checkpoint.Retry:
		p.status = fmt.Sprintf("save failed (attempt %d), retrying", e.Attempt)
		p.print(fmt.Sprintf("saving update %d failed (attempt %d): %v; next try in %s; training goes on", e.Update, e.Attempt, e.Err, e.Wait.Round(time.Millisecond)))
	case checkpoint.Failed:
		p.status = "last save failed"
		p.print(fmt.Sprintf("saving update %d was given up: %v; the last good checkpoint stays, training goes on", e.Update, e.Err))
	case checkpoint.Bad:
		p.status = "last state is bad"
		p.print(fmt.Sprintf("the state of update %d is not good: %v; the last good checkpoint stays", e.Update, e.Err))
	case checkpoint.Trouble:
		p.print(fmt.Sprintf("checkpoints: %v", e.Err))
	case checkpoint.Moved:
		p.warning(p.r.movedTo(e.Path))
	}
}

// upload shows news of the background upload; it is called from its goroutine.
func (p *progress) upload(e remote.UploadEvent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e.Kind {
	case remote.Uploaded:
		p.print(fmt.Sprintf("checkpoint %s uploaded: %s, verified", e.Checkpoint, size.Bytes(e.Upload.Bytes())))
	case remote.Dropped:
		p.print(fmt.Sprintf("checkpoint %s is not uploaded: a newer one took its place in the queue", e.Checkpoint))
	case remote.Stuck:
		p.print(fmt.Sprintf("checkpoint %s could not be uploaded: %v; it stays queued", e.Checkpoint, e.Err))
	}
}

// warn shows a warning, from any goroutine.
func (p *progress) warn(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.warning(text)
}

// warning shows a warning by itself, on stderr.
func (p *progress) warning(text string) {
	p.clear()
	p.r.warning("%s", text)
}

// print writes a line that stays.
func (p *progress) print(line string) {
	p.clear()
	p.r.printf("%s\n", line)
}

func (p *progress) rewrite(line string) {
	if w := p.r.out.width(); w > 0 {
		line = string([]rune(line)[:min(w-1, utf8.RuneCountInString(line))])
	}
	p.r.out.steer("\r\x1b[K")
	p.r.printf("%s", line)
	p.live = true
}

func (p *progress) clear() {
	if p.live {
		p.r.out.steer("\r\x1b[K")
		p.live = false
	}
}

// close leaves the last line on the screen.
func (p *progress) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.live {
		p.r.printf("\n")
		p.live = false
	}
	p.peak = p.sampler.Sample().PeakRSS
	_ = p.sampler.Close() // files of /proc, read only
}
