package remote

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestOpenURL(t *testing.T) {
	for _, name := range []string{"AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "GS_ENDPOINT_URL", "GS_ACCESS_KEY_ID", "GS_SECRET_ACCESS_KEY", "AWS_REGION"} {
		t.Setenv(name, "")
	}
	keys := Config{AccessKey: "K", SecretKey: "S"}
	for _, c := range []struct {
		url    string
		config Config
		want   string // the Remote's own URL, or the text of the error
	}{
		{"file:///a/b", Config{}, "file:///a/b"},
		{"file:///a/b/", Config{}, "file:///a/b"},
		{"file:////a//b/../c", Config{}, "file:///a/c"},
		{"s3://bucket", Config{}, "s3://bucket"},
		{"s3://bucket/a/b/", keys, "s3://bucket/a/b"},
		{"gs://bucket/a", keys, "gs://bucket/a"},
		{"s3://bucket/a?endpoint=http://localhost:7070&region=x", keys, "s3://bucket/a"},
		{"gs://bucket/a", Config{}, "set GS_ACCESS_KEY_ID"},
		{"/a/b", Config{}, "has no scheme"},
		{"ftp://a/b", Config{}, `scheme "ftp" is unknown`},
		{"file://a/b", Config{}, "want file:///absolute/path"},
		{"file:a", Config{}, "want file:///absolute/path"},
		{"s3:///a", Config{}, "want s3://bucket/prefix"},
		{"s3://bucket:80/a", Config{}, "want s3://bucket/prefix"},
		{"s3://bucket/a?acl=public", Config{}, `option "acl" is unknown`},
		{"s3://bucket/a?region=a&region=b", Config{}, "region is given 2 times"},
		{"s3://bucket/a#x", Config{}, "has no meaning"},
		{"s3://K:secret@bucket/a", Config{}, "contains a user or password"},
		{"s3://K:secret@buc ket/a", Config{}, "invalid character"},
		{"s3://bucket/a?endpoint=localhost:7070", Config{}, `endpoint "localhost:7070": want https://host`},
		{"s3://bucket/a?endpoint=http://u:p@h", Config{}, "want https://host"},
		{"s3://bucket/a", Config{PartSize: 1000}, "below the protocol's smallest"},
	} {
		r, err := Open(c.url, c.config)
		got := fmt.Sprint(err)
		if err == nil {
			got = r.String()
		}
		if err == nil && got != c.want || !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %s", c.url, got, c.want)
		}
		if strings.Contains(got, "secret") {
			t.Errorf("%s: the secret is in %q", c.url, got)
		}
	}
}

// conformance is what every Remote must do.
func conformance(t *testing.T, r Remote) {
	ctx := context.Background()
	data := make([]byte, 2*minPart+12345) // several parts
	for i := range data {
		data[i] = byte(rand.Uint32())
	}
	sumOf := func(b []byte) string { s := sha256.Sum256(b); return hex.EncodeToString(s[:]) }
	if list, err := r.List(ctx, ""); err != nil || len(list) != 0 {
		t.Fatalf("at first there is %v, %v", list, err)
	}
	objects := map[string][]byte{"a/large": data, "a/small": data[:100], "a/empty": nil, "b/c/deep": data[:minPart]}
	for key, want := range objects {
		var last int64
		err := r.Put(ctx, key, bytes.NewReader(want), int64(len(want)), sumOf(want), PutOptions{Progress: func(n int64) {
			if n < last {
				t.Errorf("%s: progress falls from %d to %d", key, last, n)
			}
			last = n
		}})
		if err != nil || last != int64(len(want)) {
			t.Fatalf("%s: %v, progress ends at %d of %d", key, err, last, len(want))
		}
		if o, err := r.Stat(ctx, key); err != nil || o.Size != int64(len(want)) || o.SHA256 != sumOf(want) || o.Key != key {
			t.Errorf("%s: %+v %v", key, o, err)
		}
		for _, offset := range []int{0, 1, len(want) / 2} {
			if offset > 0 && offset >= len(want) {
				continue
			}
			body, err := r.Get(ctx, key, int64(offset))
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(body)
			if err = errors.Join(err, body.Close()); err != nil || !bytes.Equal(got, want[offset:]) {
				t.Errorf("%s from %d: %d bytes, %v", key, offset, len(got), err)
			}
		}
	}
	// an object can be replaced
	if err := r.Put(ctx, "a/small", bytes.NewReader(data[7:50]), 43, sumOf(data[7:50]), PutOptions{}); err != nil {
		t.Fatal(err)
	}
	if o, err := r.Stat(ctx, "a/small"); err != nil || o.Size != 43 || o.SHA256 != sumOf(data[7:50]) {
		t.Errorf("replaced: %+v %v", o, err)
	}
	// what is stored must match what was announced
	var wrong *MismatchError
	if err := r.Put(ctx, "a/wrong", bytes.NewReader(data[:10]), 10, sumOf(data[:11]), PutOptions{}); err == nil {
		if _, ok := r.(*fileRemote); ok {
			t.Error("wrong hash accepted")
		}
	} else if !errors.As(err, &wrong) {
		t.Errorf("wrong hash: %v", err)
	}
	if err := r.Remove(ctx, "a/wrong"); err != nil {
		t.Error(err)
	}
	names := func(prefix string) (keys []string) {
		list, err := r.List(ctx, prefix)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range list {
			keys = append(keys, o.Key)
		}
		slices.Sort(keys)
		return keys
	}
	if got := names(""); !slices.Equal(got, []string{"a/empty", "a/large", "a/small", "b/c/deep"}) {
		t.Error(got)
	}
	if got := names("b/"); !slices.Equal(got, []string{"b/c/deep"}) {
		t.Error(got)
	}
	for range 2 {
		if err := r.Remove(ctx, "a/large"); err != nil {
			t.Error(err)
		}
	}
	if _, err := r.Stat(ctx, "a/large"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after Remove: %v", err)
	}
	if _, err := r.Get(ctx, "a/large", 0); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after Remove: %v", err)
	}
	for _, key := range names("") {
		if err := r.Remove(ctx, key); err != nil {
			t.Error(err)
		}
	}
	done, cancel := context.WithCancel(ctx)
	cancel()
	if err := r.Put(done, "a/x", bytes.NewReader(data), int64(len(data)), sumOf(data), PutOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

func TestFileRemote(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "folder")
	r := openURL(t, "file:///"+dir+"/", Config{})
	conformance(t, r)
	for _, key := range []string{"../x", "/etc/passwd", "a/../../x"} {
		if _, err := r.Get(context.Background(), key, 0); err == nil || !strings.Contains(err.Error(), "leads out of") {
			t.Errorf("%s: %v", key, err)
		}
		if err := putBytes(context.Background(), r, key, nil); err == nil || !strings.Contains(err.Error(), "leads out of") {
			t.Errorf("%s: %v", key, err)
		}
	}
	var left []string
	if err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, partSuffix) {
			left = append(left, path)
		}
		return err
	}); err != nil || left != nil {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func TestFileRemoteWithoutPermission(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may write everywhere")
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	var permanent *PermanentError
	if err := putBytes(context.Background(), openURL(t, "file://"+dir, Config{}), "a", nil); !errors.As(err, &permanent) {
		t.Error(err)
	}
}

func TestS3Remote(t *testing.T) {
	s := newServer(t)
	conformance(t, s.remote("some/prefix"))
	conformance(t, s.remote(""))
}

func TestS3RefusesWrongKeys(t *testing.T) {
	s := newServer(t)
	for want, c := range map[string]Config{
		"check": {AccessKey: "K", SecretKey: "wrong"},
		"key":   {AccessKey: "nobody", SecretKey: "S"},
	} {
		err := putBytes(context.Background(), openURL(t, s.url("x"), c), "a", []byte("x"))
		var permanent *PermanentError
		if !errors.As(err, &permanent) || !strings.Contains(permanent.Hint, want) || strings.Contains(err.Error(), "wrong\"") {
			t.Errorf("%v", err)
		}
	}
	r := openURL(t, strings.Replace(s.url("x"), "bucket", "no-such-bucket", 1), Config{AccessKey: "K", SecretKey: "S"})
	var permanent *PermanentError
	if err := putBytes(context.Background(), r, "a", []byte("x")); !errors.As(err, &permanent) || !strings.Contains(err.Error(), "bucket") {
		t.Errorf("no bucket: %v", err)
	}
	if _, err := List(context.Background(), r, PushOptions{}); !errors.As(err, &permanent) {
		t.Errorf("no bucket: %v", err)
	}
}

func TestPartSize(t *testing.T) {
	r := &s3Remote{part: minPart}
	for _, size := range []int64{0, 1, minPart, minPart * maxParts, minPart*maxParts + 1, 5 << 40} {
		p := r.partSize(size)
		if p < minPart || (size+p-1)/p > maxParts {
			t.Errorf("%d bytes in parts of %d", size, p)
		}
	}
}

func TestRetrier(t *testing.T) {
	var waits []time.Duration
	r := &retrier{attempts: 5, now: time.Now, sleep: func(time.Duration) <-chan time.Time { return time.After(0) }, notify: func(attempt int, wait time.Duration, err error) {
		if hi := time.Second<<(attempt-1) + 50*time.Millisecond; wait < 50*time.Millisecond || wait > hi || !errors.Is(err, errNet) {
			t.Errorf("attempt %d: %v, %v", attempt, wait, err)
		}
		waits = append(waits, wait)
	}}
	if err := r.do(context.Background(), func() error { return errNet }); !errors.Is(err, errNet) || len(waits) != 4 || !strings.Contains(err.Error(), "5 attempts") {
		t.Errorf("%v after %v", err, waits)
	}
	n := 0
	if err := r.do(context.Background(), func() error { n++; return &PermanentError{errNet, "do x"} }); n != 1 || !strings.Contains(err.Error(), "do x") {
		t.Errorf("permanent: %d attempts, %v", n, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.sleep = func(time.Duration) <-chan time.Time { cancel(); return nil }
	if err := r.do(ctx, func() error { return errNet }); !errors.Is(err, context.Canceled) || !errors.Is(err, errNet) {
		t.Errorf("canceled: %v", err)
	}
}
