package cli

import (
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
)

// TestMonitorWeb: the dashboard shows a run, waits for another and serves Prometheus until it is terminated.
func TestMonitorWeb(t *testing.T) {
	work := undisturbed(t, "--training.max_steps", "2")
	v := launch(t, work, "snug", "monitor", "--web", "whole", "later", "--listen", "127.0.0.1:0")
	defer func() { _ = v.cmd.Process.Kill() }()
	if !v.until("metrics for Prometheus at") {
		t.Fatal(v.output())
	}
	_, url, _ := strings.Cut(v.output(), "dashboard at ")
	url, _, _ = strings.Cut(url, "\n")
	get := func(path string) string {
		t.Helper()
		res, err := http.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		raw, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatal(res.Status, err)
		}
		return string(raw)
	}
	if page := get("/"); !strings.Contains(page, "<title>snug monitor</title>") {
		t.Error(page)
	}
	if text := get("/metrics"); !strings.Contains(text, `snug_update{run="whole"} 2`) || !strings.Contains(text, `snug_run_state{run="whole",state="done"} 1`) {
		t.Error(text)
	}
	res, err := http.Get(url + "/events")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(io.LimitReader(res.Body, 300)) // the stream has no end
	if err := res.Body.Close(); err != nil {
		t.Error(err)
	}
	if err != nil || !strings.Contains(string(raw), `"missing":`) {
		t.Errorf("%v: %s", err, raw)
	}
	if err := v.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := v.wait(); code != exitDone {
		t.Errorf("exit code %d\n%s", code, v.output())
	}
}
