package web

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash/fnv"
	"math"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/snug-ml/snug/monitor"
)

// hub follows the runs that are shown. All pages read the same runs, one at a time.
type hub struct {
	paths []string
	now   func() time.Time

	mu     sync.Mutex
	open   map[string]*monitor.Run // by path, of those that exist
	failed map[string]string       // by path, why it cannot be shown
	heads  map[*monitor.Run]*head
	news   chan struct{} // closed when something is new
}

// entry is a run that is shown, or a path at which there is none yet.
type entry struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Path    string `json:"path"`
	Missing string `json:"missing,omitempty"` // why it cannot be read

	run *monitor.Run
}

// head is what a page shows of a run's current state; it is sent again as a whole when it
// changes.
type head struct {
	*monitor.Snapshot
	Info    *monitor.Info `json:"info,omitempty"` // sent by itself, as it seldom changes
	Reports []page        `json:"reports,omitempty"`

	at      time.Time
	sum     uint32
	infoSum uint32
	text    string // written by its language model
	textSum uint32
}

// stale is the age at which a head is rebuilt although nothing was written: silence is
// how a dead run shows.
const stale = 15 * time.Second

func newHub(paths []string, now func() time.Time) *hub {
	h := &hub{now: now, open: map[string]*monitor.Run{}, failed: map[string]string{}, heads: map[*monitor.Run]*head{}, news: make(chan struct{})}
	for _, path := range paths {
		if path = filepath.Clean(path); !slices.Contains(h.paths, path) {
			h.paths = append(h.paths, path)
		}
	}
	h.poll()
	return h
}

// follow polls until ctx ends.
func (h *hub) follow(ctx context.Context, interval time.Duration) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			h.poll()
		}
	}
}

// poll reads what was written and wakes waiting pages.
func (h *hub) poll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	changed := false
	for _, path := range h.paths {
		r := h.open[path]
		if r == nil {
			changed = h.try(path) || changed
			continue
		}
		news, _ := r.Poll() // a missing run shows it in its state
		for _, x := range r.Each() {
			if old := h.heads[x]; news || old != nil && h.now().Sub(old.at) >= stale {
				changed = true
				delete(h.heads, x)
				h.head(x) // now, so that no page waits for it
			}
		}
	}
	if changed {
		close(h.news)
		h.news = make(chan struct{})
	}
}

// try opens a run that did not exist before.
func (h *hub) try(path string) (changed bool) {
	r, err := monitor.Open(path)
	if err == nil {
		h.open[path] = r
		delete(h.failed, path)
		for _, x := range r.Each() {
			h.head(x)
		}
		return true
	}
	why := monitor.Printable(err.Error())
	changed = h.failed[path] != why
	h.failed[path] = why
	return changed
}

// wait returns a channel that is closed when something is new.
func (h *hub) wait() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.news
}

// entries returns the runs that are shown, and the paths at which there is none. Call it
// with mu locked.
func (h *hub) entries() (out []entry) {
	names := map[string]int{}
	for _, path := range h.paths {
		r := h.open[path]
		if r == nil {
			out = append(out, entry{ID: idOf(path), Name: named(path), Path: monitor.Printable(path), Missing: h.failed[path]})
		} else {
			for _, x := range r.Each() {
				name := named(x.Path())
				if x != r {
					name = named(path) + "/" + name
				}
				out = append(out, entry{ID: idOf(x.Path()), Name: name, Path: monitor.Printable(x.Path()), run: x})
			}
		}
	}
	for _, e := range out {
		names[e.Name]++
	}
	for i := range out {
		if names[out[i].Name] > 1 {
			out[i].Name = out[i].Path
		}
	}
	return out[max(0, len(out)-maxRuns):] // the newest ones
}

// maxRuns bounds what one page shows, and so the length of its cursor.
const maxRuns = 64

// named returns the last part of a path, as text.
func named(path string) string {
	if path == "." || path == ".." {
		if whole, err := filepath.Abs(path); err == nil {
			path = whole
		}
	}
	return cmp.Or(monitor.Printable(filepath.Base(path)), "?")
}

// idOf returns a run's name in addresses and cursors, which survives a restart.
func idOf(path string) string {
	if whole, err := filepath.Abs(path); err == nil {
		path = whole
	}
	sum := sha256.Sum256([]byte(path))
	return hex.EncodeToString(sum[:6])
}

var errNoRun = errors.New("no such run is shown")

// with calls f with the run that has an ID.
func (h *hub) with(id string, f func(e entry)) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.entries() {
		if e.ID == id && e.run != nil {
			f(e)
			return nil
		}
	}
	return errNoRun
}

// head returns the head of a run. Call it with mu locked.
func (h *hub) head(r *monitor.Run) *head {
	if x := h.heads[r]; x != nil {
		return x
	}
	s := r.Snapshot(h.now(), monitor.View{From: math.MaxInt64, Width: 1, Evaluations: 1})
	x := &head{Snapshot: s, at: h.now(), Reports: reportsOf(r.Path()), text: writtenText(r.Path())}
	x.textSum = sumOf(x.text)
	info := s.Info
	x.infoSum = sumOf(info)
	s.At, s.Series, s.Machine, s.Log, s.Info = time.Time{}, nil, nil, nil, monitor.Info{}
	x.sum = sumOf(x)
	s.At, s.Info = x.at.UTC(), info
	h.heads[r] = x
	return x
}

// sumOf identifies a value.
func sumOf(v any) uint32 {
	raw, err := json.Marshal(v)
	if err != nil {
		return 0
	}
	f := fnv.New32a()
	_, _ = f.Write(raw)
	return f.Sum32()
}
