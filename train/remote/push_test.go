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

// places runs a test against each kind of Remote.
func places(t *testing.T, test func(t *testing.T, r Remote)) {
	t.Run("file", func(t *testing.T) { test(t, openURL(t, "file://"+t.TempDir(), Config{})) })
	t.Run("s3", func(t *testing.T) { test(t, newServer(t).remote("runs/a")) })
}

func TestPushAndPull(t *testing.T) {
	places(t, func(t *testing.T, r Remote) {
		ctx := context.Background()
		run := newRun(t, 12<<20, 5, 10, 20)
		for _, packed := range []bool{false, true} {
			opts := fast()
			opts.Pack = packed
			update := map[bool]int64{false: 5, true: 10}[packed]
			u, err := Push(ctx, r, dirOf(run, update), opts)
			if err != nil {
				t.Fatal(err)
			}
			again, err := Push(ctx, r, dirOf(run, update), opts)
			if err != nil || again.SHA256 != u.SHA256 {
				t.Fatalf("a second time: %v", err)
			}
			if whole := int64(12 << 20); packed != (u.Bytes() < whole*3/4) {
				t.Errorf("packed %v: %d bytes are stored", packed, u.Bytes())
			}
			to := t.TempDir()
			for range 2 { // the second finds it there
				dir, err := Pull(ctx, r, checkpoint.Name(update), to, fast())
				if err != nil || dir != dirOf(to, update) {
					t.Fatalf("%s %v", dir, err)
				}
				same(t, dirOf(run, update), dir)
			}
		}
		left, err := filepath.Glob(filepath.Join(run, "*", ".*"))
		if err != nil || len(left) > 0 {
			t.Errorf("scratch is left: %v %v", left, err)
		}
		// the newest by number, and of two, the intact one
		if _, err := Push(ctx, r, dirOf(run, 20), fast()); err != nil {
			t.Fatal(err)
		}
		latest, rejected, err := Latest(ctx, r, "")
		if err != nil || latest.Update != 20 || rejected != nil {
			t.Fatalf("%+v %v %v", latest, rejected, err)
		}
		if err := r.Remove(ctx, "step-00000020/config.yaml"); err != nil {
			t.Fatal(err)
		}
		if err := putBytes(ctx, r, "step-00000030/model.safetensors", []byte("half")); err != nil {
			t.Fatal(err)
		}
		if err := putBytes(ctx, r, "step-00000040/upload.json", []byte("{}")); err != nil {
			t.Fatal(err)
		}
		if err := putBytes(ctx, r, "notes.txt", []byte("by the user")); err != nil {
			t.Fatal(err)
		}
		latest, rejected, err = Latest(ctx, r, "")
		if err != nil || latest.Update != 10 || len(rejected) != 3 {
			t.Fatalf("%+v %v %v", latest, rejected, err)
		}
		for i, want := range []string{"has format", "not finished", "config.yaml is missing"} {
			if !strings.Contains(rejected[i].Problem.Error(), want) {
				t.Errorf("%s: %v, want %q", rejected[i].Name, rejected[i].Problem, want)
			}
		}
		to := t.TempDir()
		if dir, err := Pull(ctx, r, "latest", to, fast()); err != nil || dir != dirOf(to, 10) {
			t.Errorf("%s %v", dir, err)
		}
		// damage is repaired by a Push
		for _, update := range []int64{20} {
			if _, err := Push(ctx, r, dirOf(run, update), fast()); err != nil {
				t.Fatal(err)
			}
			if latest, _, err := Latest(ctx, r, ""); err != nil || latest.Update != update {
				t.Errorf("%+v %v", latest, err)
			}
		}
	})
}

// TestPushReplaces: another checkpoint of the run with the same number replaces it, and
// there is never an upload.json with mixed objects.
func TestPushReplaces(t *testing.T) {
	ctx := context.Background()
	r := &flaky{Remote: openURL(t, "file://"+t.TempDir(), Config{})}
	id := rundir.NewID()
	one, two := newRunOf(t, id, 1000, 7), newRunOf(t, id, 2000, 7)
	if _, err := Push(ctx, r, dirOf(one, 7), fast()); err != nil {
		t.Fatal(err)
	}
	r.set(func(call, key string) error {
		if call == "put" {
			if _, err := r.Remote.Stat(ctx, "step-00000007/"+UploadFile); err == nil {
				t.Errorf("%s is replaced under its mark", key)
			}
		}
		return nil
	})
	if _, err := Push(ctx, r, dirOf(two, 7), fast()); err != nil {
		t.Fatal(err)
	}
	r.set(nil)
	to := t.TempDir()
	if _, err := Pull(ctx, r, "latest", to, fast()); err != nil {
		t.Fatal(err)
	}
	same(t, dirOf(two, 7), dirOf(to, 7))
}

// Another run's upload is not replaced, and stays intact.
func TestPushSparesAnotherRun(t *testing.T) {
	ctx := context.Background()
	r := openURL(t, "file://"+t.TempDir(), Config{})
	one, two := newRun(t, 1000, 7), newRun(t, 2000, 7)
	if _, err := Push(ctx, r, dirOf(one, 7), fast()); err != nil {
		t.Fatal(err)
	}
	if _, err := Push(ctx, r, dirOf(two, 7), fast()); err == nil || !strings.Contains(err.Error(), "of another run") {
		t.Error(err)
	}
	to := t.TempDir()
	if _, err := Pull(ctx, r, "latest", to, fast()); err != nil {
		t.Fatal(err)
	}
	same(t, dirOf(one, 7), dirOf(to, 7))
	// Nor is a checkpoint uploaded for a run that it does not belong to.
	opts := fast()
	opts.Run = rundir.NewID()
	if _, err := Push(ctx, openURL(t, "file://"+t.TempDir(), Config{}), dirOf(one, 7), opts); err == nil || !strings.Contains(err.Error(), "belongs to run") {
		t.Error(err)
	}
}

func TestDamagedIsNotPushed(t *testing.T) {
	r := openURL(t, "file://"+t.TempDir(), Config{})
	run := newRun(t, 1000, 7)
	if err := os.Truncate(filepath.Join(dirOf(run, 7), checkpoint.WeightsFile), 500); err != nil {
		t.Fatal(err)
	}
	_, err := Push(context.Background(), r, dirOf(run, 7), fast())
	if err == nil || !strings.Contains(err.Error(), `tensor "w"`) || !strings.Contains(err.Error(), "not uploaded") {
		t.Error(err)
	}
	if list, err := r.List(context.Background(), ""); err != nil || len(list) > 0 {
		t.Errorf("%v %v", list, err)
	}
	if _, err := Push(context.Background(), r, dirOf(run, 8), fast()); err == nil || !strings.Contains(err.Error(), "no checkpoint") {
		t.Error(err)
	}
}

// TestEveryCallFailsOnce: whatever call fails once, Push and Pull complete; a
// network that stays down is reported.
func TestEveryCallFailsOnce(t *testing.T) {
	ctx := context.Background()
	run := newRun(t, 1000, 7)
	for n, over := 0, false; !over; n++ {
		r := &flaky{Remote: openURL(t, "file://"+t.TempDir(), Config{})}
		calls := 0
		r.set(func(string, string) error {
			if calls++; calls == n+1 {
				return errNet
			}
			return nil
		})
		if _, err := Push(ctx, r, dirOf(run, 7), fast()); err != nil {
			t.Fatalf("call %d: push: %v", n, err)
		}
		to := t.TempDir()
		if _, err := Pull(ctx, r, "latest", to, fast()); err != nil {
			t.Fatalf("call %d: pull: %v", n, err)
		}
		same(t, dirOf(run, 7), dirOf(to, 7))
		over = calls <= n
	}
	r := &flaky{Remote: openURL(t, "file://"+t.TempDir(), Config{}), fail: func(string, string) error { return errNet }}
	if _, err := Push(ctx, r, dirOf(run, 7), fast()); !errors.Is(err, errNet) || !strings.Contains(err.Error(), "4 attempts") {
		t.Errorf("push: %v", err)
	}
	if _, err := Pull(ctx, r, "latest", t.TempDir(), fast()); !errors.Is(err, errNet) {
		t.Errorf("pull: %v", err)
	}
}

// TestPullGoesOn: a download that is interrupted again and again fetches nothing twice,
// within a Pull and from one to the next.
func TestPullGoesOn(t *testing.T) {
	places(t, func(t *testing.T, remote Remote) {
		ctx := context.Background()
		run := newRun(t, 3<<20, 7)
		u, err := Push(ctx, remote, dirOf(run, 7), fast())
		if err != nil {
			t.Fatal(err)
		}
		r := &flaky{Remote: remote, cut: 1 << 20}
		opts := fast()
		opts.Attempts = 2 // not enough for one Pull
		to := t.TempDir()
		pulls := 0
		for err = errNet; errors.Is(err, errNet) && pulls < 20; pulls++ {
			_, err = Pull(ctx, r, "step-00000007", to, opts)
		}
		if err != nil || pulls < 2 {
			t.Fatalf("after %d pulls: %v", pulls, err)
		}
		same(t, dirOf(run, 7), dirOf(to, 7))
		if most := u.Bytes() + int64(pulls)*10_000; r.got > most {
			t.Errorf("%d bytes were fetched for %d", r.got, u.Bytes())
		}
	})
}

// TestPullChecks: objects that were changed at the remote, and forged upload.json files,
// do no harm.
func TestPullChecks(t *testing.T) {
	ctx := context.Background()
	store := t.TempDir()
	r := openURL(t, "file://"+store, Config{})
	run := newRun(t, 1000, 7)
	opts := fast()
	opts.Pack = true
	if _, err := Push(ctx, r, dirOf(run, 7), opts); err != nil {
		t.Fatal(err)
	}
	u, err := readUpload(ctx, r, "step-00000007")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range u.Files {
		path := filepath.Join(store, "step-00000007", f.object())
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		data[len(data)/2] ^= 1
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		to := t.TempDir()
		var wrong *MismatchError
		if _, err := Pull(ctx, r, "step-00000007", to, fast()); !errors.As(err, &wrong) || !strings.Contains(err.Error(), f.object()) {
			t.Errorf("%s changed: %v", f.Name, err)
		}
		if _, err := os.Stat(dirOf(to, 7)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s changed: something was put in place", f.Name)
		}
		data[len(data)/2] ^= 1
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for want, change := range map[string]func(*Upload){
		"not a plain name":       func(u *Upload) { u.Files[1].Name = "../../evil" },
		"listed twice":           func(u *Upload) { u.Files[1].Name = u.Files[2].Name },
		"negative size":          func(u *Upload) { u.Files[1].Size = -1 },
		"does not list manifest": func(u *Upload) { u.Files = u.Files[1:] },
		"the folder was renamed": func(u *Upload) { u.Update = 8 },
		"has the update -1":      func(u *Upload) { u.Update = -1 },
		"version 9":              func(u *Upload) { u.Version = 9 },
		"names the run":          func(u *Upload) { u.Run = "\x1b]0;x\a" },
		"x.json":                 func(u *Upload) { u.Files[1].Name = "x.json" }, // which is not there
	} {
		forged := *u
		forged.Files = append([]UploadedFile{}, u.Files...)
		change(&forged)
		text, err := forged.encode()
		if err != nil {
			t.Fatal(err)
		}
		other := t.TempDir()
		if err := os.CopyFS(other, os.DirFS(store)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(other, "step-00000007", UploadFile), text, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err = Pull(ctx, openURL(t, "file://"+other, Config{}), "step-00000007", t.TempDir(), fast())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nwant it to say %q", err, want)
		}
	}
	for _, name := range []string{"step-00000008", "../x", "", "step-7"} {
		if _, err := Pull(ctx, r, name, t.TempDir(), fast()); err == nil {
			t.Errorf("%q was pulled", name)
		}
	}
	if _, err := Pull(ctx, openURL(t, "file://"+t.TempDir(), Config{}), "latest", t.TempDir(), fast()); !errors.Is(err, checkpoint.ErrNone) {
		t.Error(err)
	}
	if !whole(dirOf(run, 7)) {
		t.Error("the source was changed")
	}
}

func FuzzUpload(f *testing.F) {
	good, err := (&Upload{Format: uploadFormat, Version: uploadVersion, Files: []UploadedFile{{Name: checkpoint.ManifestFile}}}).encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"format":"snug-upload","version":1,"files":[{"name":"../x"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		u, err := parseUpload(text)
		if err != nil {
			return
		}
		for _, file := range u.Files {
			if filepath.Dir(filepath.Join("folder", file.Name)) != "folder" || file.Stored < 0 {
				t.Errorf("accepts %+v", file)
			}
		}
	})
}
