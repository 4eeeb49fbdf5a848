package mlflow

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Limits of the API: https://mlflow.org/docs/latest/api_reference/rest-api.html, Log Batch.
const (
	maxMetrics  = 1000 // parameters and tags included
	maxParams   = 100
	maxTags     = 100
	maxRequest  = 900_000 // bytes; the server takes a million
	maxKey      = 250     // characters
	maxParam    = 6000
	maxTag      = 5000 // before 2.10; later servers take 8000
	defaultName = "0"  // the experiment Default, which every server starts with
)

// Metric is a point of a curve.
type Metric struct {
	Key   string
	Value float64
	At    time.Time
	Step  int64
}

// MarshalJSON writes values that are not finite by name, like protocol buffers.
func (m Metric) MarshalJSON() ([]byte, error) {
	value := any(m.Value)
	switch {
	case math.IsNaN(m.Value):
		value = "NaN"
	case math.IsInf(m.Value, 1):
		value = "Infinity"
	case math.IsInf(m.Value, -1):
		value = "-Infinity"
	}
	return json.Marshal(struct {
		Key   string `json:"key"`
		Value any    `json:"value"`
		At    int64  `json:"timestamp"`
		Step  int64  `json:"step"`
	}{Name(m.Key), value, max(0, m.At.UnixMilli()), m.Step})
}

// Pair is a parameter or a tag.
type Pair struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Name turns key into one that the server accepts: only letters, digits and _ - . space :
// /, at most 250 characters, and no path that could be written shorter.
func Name(key string) string {
	key = strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("_-. :/", r) {
			return r
		}
		return '_'
	}, key)
	if path.Clean(key) != key || strings.HasPrefix(key, "/") || strings.HasPrefix(key, "..") || key == "." {
		key = "_" + strings.ReplaceAll(key, "/", "_")
	}
	return cut(key, maxKey, "")
}

// cut shortens a text to at most that many characters, ending with end if it was longer.
func cut(s string, most int, end string) string {
	if r := []rune(s); len(r) > most {
		return string(r[:most-len([]rune(end))]) + end
	}
	return s
}

// value returns the value of a parameter or a tag, which says so if it is cut.
func value(s string, most int) string {
	return cut(s, most, fmt.Sprintf("... (%d characters, all of which are in config.yaml)", len([]rune(s))))
}

// state is what the server knows about a run.
type state struct {
	Info struct {
		RunID      string `json:"run_id"`
		Experiment string `json:"experiment_id"`
		Status     Status `json:"status"`
		Stage      string `json:"lifecycle_stage"`
	} `json:"info"`
	Data struct {
		Metrics []struct {
			Key  string `json:"key"`
			Step count  `json:"step"`
		} `json:"metrics"` // the newest point of each
		Params []Pair `json:"params"`
	} `json:"data"`
}

// count is an int64, which servers write as a number or as a text.
type count int64

// UnmarshalJSON reads either.
func (c *count) UnmarshalJSON(raw []byte) error {
	n, err := strconv.ParseInt(strings.Trim(string(raw), `"`), 10, 64)
	*c = count(n)
	return err
}

// Status is the status of a run.
type Status string

// The states of a run.
const (
	Running  Status = "RUNNING"
	Finished Status = "FINISHED"
	Failed   Status = "FAILED"
	Killed   Status = "KILLED" // stopped before its last update
)

// experiment is the identifier of an experiment, which is created if there is none of
// that name.
func (s *Server) experiment(ctx context.Context, name string) (string, error) {
	var found struct {
		Experiment struct {
			ID    string `json:"experiment_id"`
			Stage string `json:"lifecycle_stage"`
		} `json:"experiment"`
	}
	err := s.get(ctx, "experiments/get-by-name", url.Values{"experiment_name": {name}}, &found)
	if missing(err) {
		var made struct {
			ID string `json:"experiment_id"`
		}
		err := s.post(ctx, "experiments/create", map[string]string{"name": name}, &made)
		return made.ID, err
	}
	if err == nil && found.Experiment.Stage == "deleted" {
		err = &Error{Server: s.String(), Err: fmt.Errorf("the experiment %q is deleted there", name), Permanent: true,
			Hint: fmt.Sprintf("restore it with `mlflow experiments restore --experiment-id %s`, or name another in MLFLOW_EXPERIMENT_NAME", found.Experiment.ID)}
	}
	return found.Experiment.ID, err
}

// find returns the newest run of an experiment with a tag, nil if there is none.
func (s *Server) find(ctx context.Context, experiment string, tag Pair) (*state, error) {
	var found struct {
		Runs []*state `json:"runs"`
	}
	err := s.post(ctx, "runs/search", map[string]any{
		"experiment_ids": []string{experiment}, "filter": "tags.`" + tag.Key + "` = '" + tag.Value + "'",
		"run_view_type": "ACTIVE_ONLY", "max_results": 1,
	}, &found)
	if err != nil || len(found.Runs) == 0 {
		return nil, err
	}
	return found.Runs[0], nil
}

// answer is the answer to requests about one run.
type answer struct {
	Run *state `json:"run"`
}

// run returns the run in the answer, which must contain one.
func (a *answer) run(s *Server, err error) (*state, error) {
	if err != nil {
		return nil, err
	}
	if a.Run == nil || a.Run.Info.RunID == "" {
		return nil, s.stranger("its answer names no run")
	}
	return a.Run, nil
}

func (s *Server) run(ctx context.Context, id string) (*state, error) {
	var a answer
	return a.run(s, s.get(ctx, "runs/get", url.Values{"run_id": {id}}, &a))
}

func (s *Server) create(ctx context.Context, experiment, name string, start time.Time, tags []Pair) (*state, error) {
	var a answer
	return a.run(s, s.post(ctx, "runs/create", map[string]any{
		"experiment_id": experiment, "run_name": name, "start_time": start.UnixMilli(), "tags": tags,
	}, &a))
}

// update sets the status of a run, and when it ended unless end is zero.
func (s *Server) update(ctx context.Context, id string, status Status, end time.Time) error {
	body := map[string]any{"run_id": id, "status": status}
	if !end.IsZero() {
		body["end_time"] = end.UnixMilli()
	}
	return s.post(ctx, "runs/update", body, nil)
}

// batch is the body of a log-batch request.
type batch struct {
	RunID   string   `json:"run_id"`
	Metrics []Metric `json:"metrics,omitempty"`
	Params  []Pair   `json:"params,omitempty"`
	Tags    []Pair   `json:"tags,omitempty"`
}

func (s *Server) log(ctx context.Context, b batch) error {
	return s.post(ctx, "runs/log-batch", b, nil)
}

// batches cuts pairs into lists that a request can hold.
func batches(list []Pair, most int) (out [][]Pair) {
	size, from := 0, 0
	for i, p := range list {
		// In JSON a byte takes at most six.
		n := 6*(len(p.Key)+len(p.Value)) + 32
		if i-from == most || i > from && size+n > maxRequest {
			out, size, from = append(out, list[from:i]), 0, i
		}
		size += n
	}
	if from < len(list) {
		out = append(out, list[from:])
	}
	return out
}

// System begins the keys that the server's pages show as metrics of the machine.
const System = "system/"

// IsSystem reports whether a key is a metric of the machine.
func IsSystem(key string) bool { return strings.HasPrefix(key, System) }
