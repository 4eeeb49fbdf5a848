package remote

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// silent is the address of a server that accepts and never answers, nor reads.
func silent(t *testing.T) string {
	t.Helper()
	l, err := newListener()
	if err != nil {
		t.Fatal(err)
	}
	var held []net.Conn
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			held = append(held, c)
		}
	}()
	t.Cleanup(func() {
		_ = l.Close() // which ends the loop
		<-ended
		for _, c := range held {
			_ = c.Close()
		}
	})
	return l.Addr().String()
}

// brief is a remote whose connections may be idle only for an instant.
func brief(t *testing.T, address string) Remote {
	t.Helper()
	return openURL(t, "s3://bucket/x?endpoint=http://"+address+"&region=us-east-1", Config{AccessKey: "K", SecretKey: "S", idle: 20 * time.Millisecond})
}

func stalled(t *testing.T, what string, err error, while string) {
	t.Helper()
	var s *StalledError
	if !errors.As(err, &s) || s.While != while {
		t.Errorf("%s: %v, want a stall: %s", what, err, while)
	}
	if permanent := (*PermanentError)(nil); errors.As(err, &permanent) {
		t.Errorf("%s: not tried again: %v", what, err)
	}
}

// Every kind of call to a server that never answers ends as failed.
func TestSilentServer(t *testing.T) {
	ctx, r := context.Background(), brief(t, silent(t))
	_, err := r.Stat(ctx, "a")
	stalled(t, "stat", err, "no response started")
	_, err = r.List(ctx, "")
	stalled(t, "list", err, "no response started")
	_, err = r.Get(ctx, "a", 0)
	stalled(t, "get", err, "no response started")
	stalled(t, "remove", r.Remove(ctx, "a"), "no response started")
	stalled(t, "put", r.Put(ctx, "a", strings.NewReader("x"), 1, "", PutOptions{}), "no response started")
}

// So does a body that the server stops reading.
func TestServerThatStopsReading(t *testing.T) {
	w := &watched{http.DefaultTransport, 20 * time.Millisecond}
	req, err := http.NewRequest(http.MethodPut, "http://"+silent(t), io.LimitReader(zeros{}, 1<<40))
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.RoundTrip(req) //nolint:bodyclose // there is no answer
	stalled(t, "put", err, "no response started")
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// An answer that stops in the middle fails, a complete one does not.
func TestServerThatStopsInMidBody(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("ETag", `"x"`)
		w.Header().Set("Last-Modified", "Mon, 02 Jan 2006 15:04:05 GMT")
		w.Header().Set("Content-Length", "8")
		_, _ = w.Write([]byte("half")) // the client may be gone
		if strings.HasSuffix(req.URL.Path, "whole") {
			_, _ = w.Write([]byte("half"))
			return
		}
		w.(http.Flusher).Flush()
		<-req.Context().Done()
	}))
	t.Cleanup(srv.Close)
	ctx := context.Background()
	r := openURL(t, "s3://bucket/x?endpoint="+srv.URL+"&region=us-east-1", Config{AccessKey: "K", SecretKey: "S", idle: 2 * time.Second})
	for name, want := range map[string]string{"whole": "halfhalf", "cut": "half"} {
		body, err := r.Get(ctx, name, 0)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(body)
		if string(text) != want {
			t.Errorf("%s: read %q", name, text)
		}
		if name == "cut" {
			stalled(t, name, err, "the response stopped")
		} else if err != nil {
			t.Error(err)
		}
		if err := body.Close(); err != nil {
			t.Error(err)
		}
	}
}

// An upload without progress is abandoned after a time limit; a slow one that makes
// progress gets as many attempts as any other.
func TestPatience(t *testing.T) {
	for _, c := range []struct {
		attempt time.Duration
		want    string
	}{{30 * time.Second, "given up after 4 attempts, without progress for 2m0s: the network is down"}, {time.Hour, "given up after 8 attempts: the network is down"}} {
		var clock time.Time
		told := 0
		o := PushOptions{Patience: 2 * time.Minute, Retry: func(RetryEvent) { told++ }}
		o.defaults()
		o.now = func() time.Time { return clock }
		o.sleep = func(d time.Duration) <-chan time.Time { clock = clock.Add(d); return time.After(0) }
		attempts := 0
		err := o.retrier("a").do(context.Background(), func() error {
			attempts++
			clock = clock.Add(c.attempt)
			return errNet
		})
		if err == nil || err.Error() != c.want || told != attempts-1 {
			t.Errorf("%v, told %d times of %d attempts, want %s", err, told, attempts, c.want)
		}
	}
}
