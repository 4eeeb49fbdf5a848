package remote

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/snug-ml/snug/data/safetensors"
	"github.com/snug-ml/snug/train/checkpoint"
	"github.com/snug-ml/snug/train/rundir"
)

// The test binary is its own helper process: with this variable set it uploads
// the checkpoint named on its command line until it is killed.
const helperVar = "SNUG_REMOTE_HELPER"

func TestMain(m *testing.M) {
	if os.Getenv(helperVar) == "" {
		os.Exit(m.Run())
	}
	if err := helper(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func helper(run, url, name string) error {
	r, err := Open(url, Config{AccessKey: "K", SecretKey: "S", PartSize: minPart})
	if err != nil {
		return err
	}
	dir, err := rundir.Look(run)
	if err != nil {
		return err
	}
	u, err := NewUploader(dir, r, UploaderOptions{})
	if err != nil {
		return err
	}
	if err := u.Enqueue(name); err != nil {
		return err
	}
	fmt.Println("queued")
	select {} // until it is killed
}

// uploader starts one that does not really wait between attempts.
// look opens a run folder until the end of the test.
func look(t testing.TB, run string) *rundir.Dir {
	t.Helper()
	d, err := rundir.Look(run)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() }) // nothing to lose
	return d
}

func uploader(t testing.TB, run string, r Remote, opts UploaderOptions) *Uploader {
	t.Helper()
	if opts.Push.sleep == nil {
		opts.Push.sleep = fast().sleep
	}
	u, err := NewUploader(look(t, run), r, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(u.Close)
	return u
}

func enqueue(t testing.TB, u *Uploader, updates ...int64) {
	t.Helper()
	for _, update := range updates {
		if err := u.Enqueue(checkpoint.Name(update)); err != nil {
			t.Fatal(err)
		}
	}
}

func drain(t testing.TB, u *Uploader) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if err := u.Drain(ctx); err != nil {
		t.Fatal(err)
	}
}

func queued(t testing.TB, run string) (names []string) {
	t.Helper()
	list, err := os.ReadDir(filepath.Join(run, QueueFolder))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

func remoteUpdates(t testing.TB, r Remote) (updates []int64) {
	t.Helper()
	list, err := List(context.Background(), r, PushOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if e.Problem == nil {
			updates = append(updates, e.Update)
		}
	}
	return updates
}

// TestUploadDuringTraining: a store that keeps one checkpoint and an uploader that is
// slower; no queued checkpoint is deleted.
func TestUploadDuringTraining(t *testing.T) {
	run := t.TempDir()
	r := &flaky{Remote: openURL(t, "file://"+t.TempDir(), Config{})}
	gate := make(chan struct{})
	r.set(func(string, string) error { <-gate; return nil })
	var mu sync.Mutex
	var up *Uploader
	var events []UploadKind
	store, err := checkpoint.Open(run, checkpoint.Options{KeepLast: 1, KeepBest: -1, OnEvent: func(e checkpoint.Event) {
		if e.Kind == checkpoint.Saved {
			if err := up.Enqueue(filepath.Base(e.Path)); err != nil {
				t.Error(err)
			}
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	up = uploader(t, run, r, UploaderOptions{MaxPending: 1, OnEvent: func(e UploadEvent) {
		mu.Lock()
		defer mu.Unlock()
		events = append(events, e.Kind)
	}})
	w := gaussian("w", safetensors.BF16, 1000, 1)
	for update := range int64(4) {
		snap := &checkpoint.Snapshot{Weights: []checkpoint.Tensor{w}, State: checkpoint.State{Update: update}}
		if err := store.Save(context.Background(), snap); err != nil {
			t.Fatal(err)
		}
		if update == 0 { // let it start with the first
			for len(up.Status().Pending) > 0 {
				time.Sleep(time.Millisecond)
			}
		}
	}
	if got := up.Status().Pending; !slices.Equal(got, []string{checkpoint.Name(3)}) {
		t.Errorf("pending %v", got)
	}
	list, err := checkpoint.List(run)
	if err != nil || len(list) < 2 || list[len(list)-1].Update != 0 {
		t.Errorf("what is being uploaded was deleted: %v %v", list, err)
	}
	close(gate)
	drain(t, up)
	if got := remoteUpdates(t, r); !slices.Equal(got, []int64{3, 0}) {
		t.Errorf("uploaded %v", got)
	}
	mu.Lock()
	if !slices.Equal(events, []UploadKind{Dropped, Dropped, Uploaded, Uploaded}) {
		t.Errorf("events %v", events)
	}
	mu.Unlock()
	if got := queued(t, run); got != nil {
		t.Errorf("left in the queue: %v", got)
	}
	if err := store.Save(context.Background(), &checkpoint.Snapshot{Weights: []checkpoint.Tensor{w}, State: checkpoint.State{Update: 9}}); err != nil {
		t.Fatal(err)
	}
	drain(t, up)
	if list, err := checkpoint.List(run); err != nil || len(list) != 1 {
		t.Errorf("pins are left: %v %v", list, err)
	}
	if err := store.Close(); err != nil {
		t.Error(err)
	}
}

// TestQueueSurvives: queued checkpoints are uploaded by the next process, newest first,
// even if a job file was damaged; missing ones are reported.
func TestQueueSurvives(t *testing.T) {
	run := newRun(t, 1000, 1, 2, 3, 4)
	down := &flaky{Remote: openURL(t, "file://"+t.TempDir(), Config{}), fail: func(string, string) error { return errNet }}
	opts := UploaderOptions{MaxPending: 10}
	opts.Push.sleep = func(time.Duration) <-chan time.Time { return nil } // waits forever
	u, err := NewUploader(look(t, run), down, opts)
	if err != nil {
		t.Fatal(err)
	}
	enqueue(t, u, 1, 2, 3, 4)
	u.Close()
	for name, text := range map[string]string{"step-00000002.json": "", "step-00000003.json": `{"sessions":`, "step-00000003.json.part": "x", ".step-00000001-model.safetensors.snugpak": "x", "notes": ""} {
		if err := os.WriteFile(filepath.Join(run, QueueFolder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.RemoveAll(dirOf(run, 1)); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var order []string
	r := openURL(t, "file://"+t.TempDir(), Config{})
	up := uploader(t, run, r, UploaderOptions{MaxPending: 10, OnEvent: func(e UploadEvent) {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, fmt.Sprint(e.Kind, " ", e.Checkpoint))
	}})
	drain(t, up)
	mu.Lock()
	defer mu.Unlock()
	if want := []string{"dropped step-00000001", "uploaded step-00000004", "uploaded step-00000003", "uploaded step-00000002"}; !slices.Equal(order, want) {
		t.Errorf("%v\nwant %v", order, want)
	}
	if got := queued(t, run); !slices.Equal(got, []string{"notes"}) {
		t.Errorf("left: %v", got)
	}
	if err := up.Enqueue("step-00000009"); err == nil {
		t.Error("what does not exist was queued")
	}
	if err := up.Enqueue("../x"); err == nil {
		t.Error("a path was queued")
	}
}

// TestStuckIsTakenUpAgain: stuck uploads are tried again once something succeeds.
func TestStuckIsTakenUpAgain(t *testing.T) {
	run := newRun(t, 1000, 1, 2)
	r := &flaky{Remote: openURL(t, "file://"+t.TempDir(), Config{}), fail: func(string, string) error { return errNet }}
	opts := UploaderOptions{}
	opts.Push.Attempts = 2
	up := uploader(t, run, r, opts)
	enqueue(t, up, 1)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if err := up.Drain(ctx); !errors.Is(err, errNet) || !strings.Contains(err.Error(), "1 checkpoints are left") {
		t.Errorf("%v", err)
	}
	if st := up.Status(); st.Stalled != 1 || !errors.Is(st.Err, errNet) || len(st.Pending) != 1 {
		t.Errorf("%+v", st)
	}
	r.set(nil)
	enqueue(t, up, 2)
	drain(t, up)
	if got := remoteUpdates(t, r); !slices.Equal(got, []int64{2, 1}) {
		t.Errorf("uploaded %v", got)
	}
	if st := up.Status(); st.Uploaded != 2 || st.Err != nil || len(st.Pending) != 0 {
		t.Errorf("%+v", st)
	}
}

// TestWrongKeyStopsAtOnce: no retry, a message that says what to check,
// and the checkpoint stays queued for the next process, with the right key.
func TestWrongKeyStopsAtOnce(t *testing.T) {
	s := newServer(t)
	run := newRun(t, 1000, 7)
	wrong := openURL(t, s.url("x"), Config{AccessKey: "K", SecretKey: "no"})
	opts := UploaderOptions{}
	opts.Push.Retry = func(e RetryEvent) { t.Errorf("repeated: %v", e.Err) }
	u, err := NewUploader(look(t, run), wrong, opts)
	if err != nil {
		t.Fatal(err)
	}
	enqueue(t, u, 7)
	if err := u.Drain(context.Background()); err == nil || !strings.Contains(err.Error(), "secret") {
		t.Errorf("%v", err)
	}
	u.Close()
	up := uploader(t, run, s.remote("x"), UploaderOptions{})
	drain(t, up)
	if got := remoteUpdates(t, s.remote("x")); !slices.Equal(got, []int64{7}) {
		t.Errorf("%v", got)
	}
}

// parts counts the parts that reach a server, through a proxy in front of it.
type parts struct {
	sync.Mutex
	sent map[string]int // by part number
	stop atomic.Int64   // parts after which stopped is called; 0: never
	hook func()
}

// proxy puts p in front of s and returns the URL to use.
func (p *parts) proxy(t testing.TB, s *server, prefix string) string {
	t.Helper()
	target, err := url.Parse(fmt.Sprintf("http://127.0.0.1:%d", s.port))
	if err != nil {
		t.Fatal(err)
	}
	p.sent = map[string]int{}
	forward := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target); r.Out.Host = r.In.Host }}
	forward.ModifyResponse = func(answer *http.Response) error {
		if n := answer.Request.URL.Query().Get("partNumber"); n != "" && answer.Request.Method == http.MethodPut && answer.StatusCode == http.StatusOK {
			p.Lock()
			p.sent[n]++
			total := 0
			for _, k := range p.sent {
				total += k
			}
			p.Unlock()
			if stop := p.stop.Load(); stop > 0 && int64(total) == stop {
				p.hook()
			}
		}
		return nil
	}
	listener := &http.Server{Handler: forward, ReadHeaderTimeout: time.Minute}
	l, err := newListener()
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = listener.Serve(l) }() // ends with Close
	t.Cleanup(func() { _ = listener.Close() })
	return fmt.Sprintf("s3://bucket/%s?endpoint=http://%s&region=us-east-1", prefix, l.Addr())
}

func (p *parts) total() (parts, most int) {
	p.Lock()
	defer p.Unlock()
	for _, k := range p.sent {
		parts += k
		most = max(most, k)
	}
	return parts, most
}

// TestServerDiesInMidUpload: the server is killed after some parts and comes
// back; the upload continues by itself and no part that had been acknowledged is
// sent again.
func TestServerDiesInMidUpload(t *testing.T) {
	s := newServer(t)
	var p parts
	dead := make(chan struct{})
	p.hook = func() { close(dead) }
	p.stop.Store(2)
	url := p.proxy(t, s, "x")
	r := openURL(t, url, Config{AccessKey: "K", SecretKey: "S", PartSize: minPart})
	run := newRun(t, 5*minPart, 7)
	opts := UploaderOptions{}
	var retries atomic.Int64
	opts.Push.Retry = func(RetryEvent) { retries.Add(1) }
	opts.Push.Attempts = 1000
	opts.Push.sleep = func(time.Duration) <-chan time.Time { return time.After(20 * time.Millisecond) }
	up := uploader(t, run, r, opts)
	enqueue(t, up, 7)
	<-dead
	s.stop()
	for retries.Load() < 3 {
		time.Sleep(time.Millisecond)
	}
	if st := up.Status(); st.Err == nil {
		t.Error("the trouble is not shown")
	}
	s.start()
	drain(t, up)
	if sent, most := p.total(); sent < 6 || most > 2 || sent > 7 {
		t.Errorf("%d parts were sent for 6, one of them %d times", sent, most)
	}
	to := t.TempDir()
	if _, err := Pull(context.Background(), s.remote("x"), "latest", to, fast()); err != nil {
		t.Fatal(err)
	}
	same(t, dirOf(run, 7), dirOf(to, 7))
}

// TestClientIsKilledInMidUpload: a process that uploads is killed after some
// parts; the next one finds the queue and continues from there.
func TestClientIsKilledInMidUpload(t *testing.T) {
	s := newServer(t)
	var p parts
	kill := make(chan struct{})
	p.hook = func() { close(kill) }
	p.stop.Store(3)
	url := p.proxy(t, s, "x")
	run := newRun(t, 6*minPart, 7)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, run, url, checkpoint.Name(7))
	cmd.Env = append(os.Environ(), helperVar+"=1")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	<-kill
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Fatal("the helper ended by itself")
	}
	if got := remoteUpdates(t, s.remote("x")); got != nil {
		t.Fatalf("half an upload is listed: %v", got)
	}
	text, err := os.ReadFile(filepath.Join(run, QueueFolder, "step-00000007.json"))
	if err != nil {
		t.Fatal(err)
	}
	var j job
	if err := json.Unmarshal(text, &j); err != nil || len(j.Sessions) != 1 {
		t.Fatalf("%s %v", text, err)
	}
	before, _ := p.total()
	up := uploader(t, run, openURL(t, url, Config{AccessKey: "K", SecretKey: "S", PartSize: minPart}), UploaderOptions{})
	drain(t, up)
	if sent, most := p.total(); sent > 8 || most > 2 || sent == before {
		t.Errorf("%d parts were sent for 7, %d of them before the kill, one %d times", sent, before, most)
	}
	to := t.TempDir()
	if _, err := Pull(context.Background(), s.remote("x"), "latest", to, fast()); err != nil {
		t.Fatal(err)
	}
	same(t, dirOf(run, 7), dirOf(to, 7))
}

// TestKilledAnywhere kills a process that uploads to a folder at random moments
// until the upload is complete; the remote never shows a partial one.
func TestKilledAnywhere(t *testing.T) {
	run := newRun(t, 8<<20, 7)
	url := "file://" + t.TempDir()
	r := openURL(t, url, Config{})
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		cmd := exec.Command(exe, run, url, checkpoint.Name(7))
		cmd.Env = append(os.Environ(), helperVar+"=1")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		bufio.NewScanner(out).Scan() // it is queued
		time.Sleep(time.Duration(i*i) * time.Millisecond)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // killed
		list, err := List(context.Background(), r, PushOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			if e.Problem == nil && e.Upload.check(context.Background(), r, e.Name) != nil {
				t.Fatalf("kill %d: a half upload counts as whole", i)
			}
		}
	}
	up := uploader(t, run, r, UploaderOptions{})
	enqueue(t, up, 7)
	drain(t, up)
	to := t.TempDir()
	if _, err := Pull(context.Background(), r, "latest", to, fast()); err != nil {
		t.Fatal(err)
	}
	same(t, dirOf(run, 7), dirOf(to, 7))
}
