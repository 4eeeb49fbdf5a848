package web

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/snug-ml/snug/monitor"
)

// cursor is what a page has of all runs. It is the id of every event, which a browser
// sends back as Last-Event-ID.
type cursor struct {
	List uint32           `json:"l"` // of the list of runs
	Runs map[string]place `json:"r"`
}

// place is what a page has of one run.
type place struct {
	monitor.Cursor
	Head uint32 `json:"h"`
	Info uint32 `json:"i"`
	Text uint32 `json:"t"`
}

func (c *cursor) String() string {
	raw, err := json.Marshal(c)
	if err != nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(raw)
}

// readCursor reads what String writes. An invalid cursor is treated as the beginning: the
// page gets everything again.
func readCursor(text string) *cursor {
	c := &cursor{}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || json.Unmarshal(raw, c) != nil {
		c = &cursor{}
	}
	if c.Runs == nil {
		c.Runs = map[string]place{}
	}
	return c
}

// update is an event: what is new in a run.
type update struct {
	ID string `json:"id"`
	// Reset means that the page's data is void: series, evaluations and log start over.
	Reset bool          `json:"reset,omitempty"`
	Head  *head         `json:"head,omitempty"`
	Info  *monitor.Info `json:"info,omitempty"`
	Text  *string       `json:"text,omitempty"` // that the model wrote

	Series      []curve              `json:"series,omitempty"` // of updates
	Machine     []curve              `json:"machine,omitempty"`
	Evaluations []monitor.Evaluation `json:"evaluations,omitempty"`
	Log         []monitor.LogLine    `json:"log,omitempty"`
}

// add adds what is new.
func (u *update) add(n monitor.News) {
	u.Series, u.Machine, u.Log = drawn(n.Series), drawn(n.Machine), n.Log
	u.Evaluations = n.Evaluations[max(0, len(n.Evaluations)-shownEvaluations):]
}

func (u *update) empty() bool {
	return !u.Reset && u.Head == nil && u.Info == nil && u.Text == nil && len(u.Series) == 0 && len(u.Machine) == 0 && len(u.Evaluations) == 0 && len(u.Log) == 0
}

// Bounds of a page.
const (
	minWidth, maxWidth = 50, 4000
	logLines           = 200
	shownEvaluations   = 200
	keepAlive          = 15 * time.Second
	writeTimeout       = 20 * time.Second
	maxPages           = 64 // open at once
	crowd              = 8  // runs; if there are more, each gets fewer points
)

// update returns what a page with this cursor lacks, and its cursor afterwards.
func (h *hub) update(e entry, have place, width int) (u *update, then place) {
	u = &update{ID: e.ID}
	x := h.head(e.run)
	then = place{Cursor: e.run.Cursor(), Head: x.sum, Info: x.infoSum, Text: x.textSum}
	if have.Head != x.sum {
		u.Head = x
	}
	if have.Info != x.infoSum {
		info := x.Snapshot.Info
		u.Info = &info
	}
	if have.Text != x.textSum {
		u.Text = &x.text
	}
	if have.Cursor == then.Cursor && have.Head != 0 {
		return u, then
	}
	news, ok := e.run.Since(have.Cursor, width, logLines)
	u.Reset = !ok || have == (place{})
	u.add(news)
	return u, then
}

// events sends a page what it lacks, as long as it is open.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	width, err := wholeOf(r.URL.Query(), "width", 600, minWidth, maxWidth)
	if err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	if n := s.pages.Add(1); n > maxPages {
		s.pages.Add(-1)
		w.Header().Set("Retry-After", "5")
		fail(w, http.StatusServiceUnavailable, fmt.Errorf("%d pages are open already", maxPages))
		return
	}
	defer s.pages.Add(-1)
	from := r.Header.Get("Last-Event-ID")
	if from == "" {
		from = r.URL.Query().Get("cursor")
	}
	have := readCursor(from)
	w.Header().Set("Content-Type", "text/event-stream")
	out := &eventWriter{w: w, to: http.NewResponseController(w)}
	out.text("retry: 1000\n\n")
	for {
		news := s.hub.wait()
		s.send(out, have, width)
		if out.err != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-s.ending:
			return
		case <-news:
		case <-time.After(keepAlive):
			out.text(": alive\n\n")
		}
	}
}

// send sends what a page lacks and moves its cursor.
func (s *Server) send(out *eventWriter, have *cursor, width int) {
	s.hub.mu.Lock()
	list := s.hub.entries()
	s.hub.mu.Unlock()
	sum := sumOf(list)
	if sum != have.List {
		shown := map[string]place{}
		for _, e := range list {
			if p, ok := have.Runs[e.ID]; ok && e.run != nil {
				shown[e.ID] = p
			}
		}
		have.List, have.Runs = sum, shown
		out.event("runs", have, list)
	}
	if len(list) > crowd {
		width = max(minWidth, width*crowd/len(list))
	}
	for _, e := range list {
		if e.run == nil {
			continue
		}
		s.hub.mu.Lock()
		u, then := s.hub.update(e, have.Runs[e.ID], width)
		s.hub.mu.Unlock()
		changed := then != have.Runs[e.ID]
		have.Runs[e.ID] = then
		if !u.empty() || changed {
			out.event("run", have, u)
		}
	}
	out.flush()
}

// eventWriter writes server-sent events. A page that stops reading is disconnected.
type eventWriter struct {
	w   http.ResponseWriter
	to  *http.ResponseController
	err error
}

func (o *eventWriter) text(text string) {
	if o.err == nil {
		if o.err = o.to.SetWriteDeadline(time.Now().Add(writeTimeout)); o.err == nil {
			_, o.err = o.w.Write([]byte(text))
		}
	}
	o.flush()
}

func (o *eventWriter) event(name string, c *cursor, v any) {
	raw, err := json.Marshal(v) // JSON contains no line break
	if o.err == nil {
		o.err = err
	}
	if o.err == nil {
		o.text("event: " + name + "\nid: " + c.String() + "\ndata: " + string(raw) + "\n\n")
	}
}

func (o *eventWriter) flush() {
	if o.err == nil {
		o.err = o.to.Flush()
	}
}

// series answers with a range of several runs, for a zoom: run=ID ..., width, from and to
// in updates, begin and end in seconds since 1970.
func (s *Server) series(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	width, err := wholeOf(q, "width", 600, minWidth, maxWidth)
	if err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	var at [4]float64
	for i, key := range []string{"from", "to", "begin", "end"} {
		if text := q.Get(key); text != "" {
			if at[i], err = strconv.ParseFloat(text, 64); err != nil || math.IsNaN(at[i]) || at[i] < 0 || at[i] > 1<<53 {
				fail(w, http.StatusBadRequest, fmt.Errorf("%s=%.40q: want a number from 0 to 2^53", key, text))
				return
			}
		}
	}
	if len(q["run"]) > maxRuns {
		fail(w, http.StatusBadRequest, fmt.Errorf("%d runs: want at most %d", len(q["run"]), maxRuns))
		return
	}
	out := []update{}
	for _, id := range q["run"] {
		var n monitor.News
		if err := s.hub.with(id, func(e entry) { n = e.run.Range(width, int64(at[0]), int64(at[1]), at[2], at[3]) }); err != nil {
			fail(w, http.StatusNotFound, fmt.Errorf("run=%.40q: %w", id, err))
			return
		}
		u := update{ID: id}
		u.add(n)
		out = append(out, u)
	}
	reply(w, out)
}

func wholeOf(q url.Values, key string, otherwise, least, most int) (int, error) {
	text := q.Get(key)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("%s=%.40q: want a whole number from %d to %d", key, text, least, most)
	}
	return n, nil
}
