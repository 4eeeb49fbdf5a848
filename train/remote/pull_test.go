package remote

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snug-ml/snug/train/checkpoint"
	"github.com/snug-ml/snug/train/rundir"
)

// TestDamageIsNamed: an object that is truncated, missing, grown or changed is named by
// List and by Pull alike; the newest intact one is pulled.
func TestDamageIsNamed(t *testing.T) {
	ctx := context.Background()
	run := newRun(t, 1000, 7, 8)
	store := t.TempDir()
	r := openURL(t, "file://"+store, Config{})
	for _, update := range []int64{7, 8} {
		if _, err := Push(ctx, r, dirOf(run, update), fast()); err != nil {
			t.Fatal(err)
		}
	}
	u, err := readUpload(ctx, r, checkpoint.Name(8))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range u.Files {
		path := filepath.Join(store, checkpoint.Name(8), f.object())
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		changed := append([]byte{}, good...)
		changed[len(changed)/2] ^= 1
		for want, data := range map[string][]byte{
			" is missing": nil, " is cut: 1 of ": good[:1], " was tampered with: its SHA-256 is ": changed, " was tampered with: it has ": append(changed, 'x'),
		} {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if data != nil {
				if err := os.WriteFile(path, data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want = "object " + checkpoint.Name(8) + "/" + f.object() + want
			list, err := List(ctx, r, PushOptions{})
			if err != nil || len(list) != 2 || list[0].Problem == nil || !strings.Contains(list[0].Problem.Error(), want) || list[1].Problem != nil {
				t.Errorf("%+v %v, want %q", list, err, want)
			}
			to := t.TempDir()
			if _, err := Pull(ctx, r, checkpoint.Name(8), to, fast()); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
			if list, err := os.ReadDir(to); err != nil || len(list) > 0 {
				t.Errorf("a refused pull left %v %v", list, err)
			}
			var passed []string
			opts := fast()
			opts.Rejected = func(e Entry) { passed = append(passed, e.Name+": "+e.Problem.Error()) }
			if path, err := Pull(ctx, r, "latest", to, opts); err != nil || path != dirOf(to, 7) || len(passed) != 1 || !strings.Contains(passed[0], want) {
				t.Errorf("%s %v, passed over %q", path, err, passed)
			}
			if err := os.WriteFile(path, good, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	// Where none is intact, all are reported.
	for _, update := range []int64{7, 8} {
		if err := os.Truncate(filepath.Join(store, checkpoint.Name(update), checkpoint.WeightsFile), 1); err != nil {
			t.Fatal(err)
		}
	}
	_, err = Pull(ctx, r, "latest", t.TempDir(), fast())
	for _, update := range []int64{7, 8} {
		if want := "object " + checkpoint.Name(update) + "/model.safetensors is cut"; !errors.Is(err, checkpoint.ErrNone) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestPullTakesTheFolder: nothing is pulled into a run that is training, nor into one
// that the checkpoint does not belong to.
func TestPullTakesTheFolder(t *testing.T) {
	ctx := context.Background()
	id := rundir.NewID()
	run, same, other := newRunOf(t, id, 1000, 7), newRunOf(t, id, 1000, 5), newRun(t, 1000, 5)
	r := openURL(t, "file://"+t.TempDir(), Config{})
	if _, err := Push(ctx, r, dirOf(run, 7), fast()); err != nil {
		t.Fatal(err)
	}
	s, err := checkpoint.Open(same, checkpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var locked *rundir.LockedError
	if _, err := Pull(ctx, r, "latest", same, fast()); !errors.As(err, &locked) {
		t.Errorf("into a run that is in use: %v", err)
	}
	if list, err := os.ReadDir(s.Dir()); err != nil || len(list) != 1 {
		t.Errorf("the run holds %v %v", list, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Pull(ctx, r, "latest", same, fast()); err != nil {
		t.Errorf("into its own run: %v", err)
	}
	for _, name := range []string{checkpoint.Name(7), "latest"} {
		if _, err := Pull(ctx, r, name, other, fast()); err == nil {
			t.Errorf("%s into another run", name)
		}
	}
	if list, err := checkpoint.List(other); err != nil || len(list) != 1 || list[0].Update != 5 {
		t.Errorf("the other run holds %v %v", list, err)
	}
	// The folder that it is pulled into belongs to its run from then on.
	to := t.TempDir()
	if _, err := Pull(ctx, r, "latest", to, fast()); err != nil || rundir.LastRun(to) != id {
		t.Errorf("%v, the folder belongs to %q", err, rundir.LastRun(to))
	}
}

// TestPullOfSeveralRuns: among several runs in one place the newest is not guessed.
func TestPullOfSeveralRuns(t *testing.T) {
	ctx := context.Background()
	old, new := newRun(t, 1000, 6000), newRun(t, 1000, 60)
	r := openURL(t, "file://"+t.TempDir(), Config{})
	for _, dir := range []string{dirOf(old, 6000), dirOf(new, 60)} {
		if _, err := Push(ctx, r, dir, fast()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Pull(ctx, r, "latest", t.TempDir(), fast()); err == nil || !strings.Contains(err.Error(), "has checkpoints of 2 runs") || !strings.Contains(err.Error(), "--checkpoint") {
		t.Error(err)
	}
	to := t.TempDir()
	if _, err := Pull(ctx, r, checkpoint.Name(60), to, fast()); err != nil {
		t.Fatal(err)
	}
	// A folder that belongs to one of them gets the newest of that run.
	if path, err := Pull(ctx, r, "latest", to, fast()); err != nil || path != dirOf(to, 60) {
		t.Errorf("%s %v", path, err)
	}
}

// TestPullFollowsNoLinks: whatever takes the place of a file to be pulled is replaced or
// refused, never written to.
func TestPullFollowsNoLinks(t *testing.T) {
	ctx := context.Background()
	run := newRun(t, 1000, 7)
	r := openURL(t, "file://"+t.TempDir(), Config{})
	if _, err := Push(ctx, r, dirOf(run, 7), fast()); err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(outside, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{checkpoint.WeightsFile, checkpoint.WeightsFile + partSuffix, ""} {
		to := t.TempDir()
		at, target := filepath.Join(dirOf(to, 7)+pullSuffix, name), outside
		if name == "" {
			target = filepath.Dir(outside)
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.Symlink(target, filepath.Clean(at))); err != nil {
			t.Skip(err)
		}
		_, err := Pull(ctx, r, "latest", to, fast())
		if name == checkpoint.WeightsFile && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if name != checkpoint.WeightsFile && err == nil {
			t.Errorf("%q: not refused", name)
		}
		if text, err := os.ReadFile(outside); err != nil || string(text) != "text" {
			t.Errorf("%q: the file outside is %q %v", name, text, err)
		}
		if list, err := os.ReadDir(filepath.Dir(outside)); err != nil || len(list) != 1 {
			t.Errorf("%q: outside are %v %v", name, list, err)
		}
	}
}

// TestPushFollowsNoLinks: nor is the target of a link in the remote folder.
func TestPushFollowsNoLinks(t *testing.T) {
	ctx := context.Background()
	run, store := newRun(t, 1000, 7), t.TempDir()
	outside := filepath.Join(t.TempDir(), "precious")
	at := filepath.Join(store, checkpoint.Name(7), checkpoint.WeightsFile)
	if err := errors.Join(os.WriteFile(outside, []byte("text"), 0o600), os.MkdirAll(filepath.Dir(at), 0o755), os.Symlink(outside, at+partSuffix), os.Symlink(outside, at)); err != nil {
		t.Skip(err)
	}
	if _, err := Push(ctx, openURL(t, "file://"+store, Config{}), dirOf(run, 7), fast()); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(outside); err != nil || string(text) != "text" {
		t.Errorf("the file outside is %q %v", text, err)
	}
}

// A list is requested again if the network fails, like an upload.
func TestListRetries(t *testing.T) {
	ctx := context.Background()
	run := newRun(t, 1000, 7, 8)
	r := openURL(t, "file://"+t.TempDir(), Config{})
	for _, update := range []int64{7, 8} {
		if _, err := Push(ctx, r, dirOf(run, update), fast()); err != nil {
			t.Fatal(err)
		}
	}
	failures := map[string]int{}
	unsteady := &flaky{Remote: r, fail: func(call, _ string) error {
		if failures[call]++; failures[call] <= 2 {
			return errNet
		}
		return nil
	}}
	var told []string
	opts := fast()
	opts.Retry = func(e RetryEvent) { told = append(told, e.Object) }
	list, err := List(ctx, unsteady, opts)
	if err != nil || len(list) != 2 || list[0].Problem != nil || list[1].Problem != nil {
		t.Errorf("%+v, %v", list, err)
	}
	if len(told) != 6 || told[0] != r.String() || told[5] != r.String() {
		t.Errorf("told of %q", told)
	}
	unsteady.set(func(string, string) error { return errNet })
	if _, err := List(ctx, unsteady, opts); err == nil || !strings.Contains(err.Error(), "given up after") {
		t.Errorf("a network that stays down: %v", err)
	}
}
