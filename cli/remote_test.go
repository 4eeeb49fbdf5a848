package cli

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/snug-ml/snug/train/remote"
)

// TestRetriesAreTold: a failed attempt is reported on stderr, with what failed and when it will be tried
// again. An object without progress is given up.
func TestRetriesAreTold(t *testing.T) {
	var said bytes.Buffer
	a := &app{err: newStream(&said, true)}
	o := a.pushOptions(false)
	o.Retry(remote.RetryEvent{Object: "step-00000004/model.safetensors", Attempt: 2, Wait: 1500 * time.Millisecond, Err: errors.New("it is down")})
	if want := "step-00000004/model.safetensors: attempt 2 failed: it is down; next try in 1.5s\n"; said.String() != want {
		t.Errorf("told %q, want %q", said.String(), want)
	}
	if o.Patience <= 0 {
		t.Error("a verb in the foreground goes on for ever")
	}
}
