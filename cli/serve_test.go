package cli

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestTokensThatNobodyCanSend: a token that no client can put in a header is rejected before anything is
// loaded.
func TestTokensThatNobodyCanSend(t *testing.T) {
	dir := t.TempDir()
	for token, ok := range map[string]bool{
		"secret": true, "a.b-c_d~e+f/g=": true, "abc\n": true, " abc ": true, // tokens from a file are trimmed
		"two words": false, "a\nb": false, "gehäuse": false, "a\x00b": false, "a\x7fb": false, "\u202eabc": false, "\xff": false,
		strings.Repeat("x", maxToken+1): false,
	} {
		path := filepath.Join(dir, "token")
		if err := os.WriteFile(path, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readToken(path, tokenVariable); (err == nil) != ok {
			t.Errorf("%q in a file: %v", token, err)
		}
		if strings.Contains(token, "\x00") {
			continue // no variable can contain it
		}
		t.Setenv(tokenVariable, token)
		if _, err := readToken("", tokenVariable); (err == nil) != (ok && strings.TrimSpace(token) == token) {
			t.Errorf("%q in the variable: %v", token, err)
		}
	}
}

// TestServeTerminated: a server that is terminated finishes the text that it is writing, then ends.
func TestServeTerminated(t *testing.T) {
	work := undisturbed(t, "--training.max_steps", "2")
	v := launch(t, work, "snug", "serve", "whole", "--listen", "127.0.0.1:0")
	defer func() { _ = v.cmd.Process.Kill() }()
	if !v.until("listening on ") {
		t.Fatal(v.output())
	}
	_, url, _ := strings.Cut(v.output(), "listening on ")
	second := launch(t, work, "snug", "serve", "whole", "--listen", strings.TrimPrefix(strings.TrimSpace(url), "http://"))
	if code := second.wait(); code != exitFailed || !strings.Contains(second.output(), "(another address: --listen 127.0.0.1:0 takes a free port)") {
		t.Errorf("on the same port, exit code %d\n%s", code, second.output())
	}
	ask := `{"model": "whole", "prompt": "the", "max_tokens": 20, "temperature": 0, "stream": true}`
	res, err := http.Post(strings.TrimSpace(url)+"/v1/completions", "application/json", strings.NewReader(ask))
	if err != nil {
		t.Fatal(err)
	}
	if err := v.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(res.Body)
	if err := res.Body.Close(); err != nil {
		t.Error(err)
	}
	if err != nil || !strings.HasSuffix(string(raw), "data: [DONE]\n\n") {
		t.Errorf("the stream ended with %v:\n%s", err, raw)
	}
	if code := v.wait(); code != exitDone || !strings.Contains(v.output(), "finishing requests") {
		t.Errorf("exit code %d\n%s", code, v.output())
	}
	greedy := done(t, "generate", filepath.Join(work, "whole"), "--prompt", "the", "--tokens", "20", "--temperature", "0")
	text := ""
	for _, line := range strings.Split(string(raw), "\n") {
		if _, after, ok := strings.Cut(line, `"text":`); ok {
			var piece string
			if _, err := fmt.Sscanf(after, "%q", &piece); err != nil {
				t.Fatal(err)
			}
			text += piece
		}
	}
	if greedy.out != "the"+text+"\n" {
		t.Errorf("the server writes %q, generate %q", "the"+text, greedy.out)
	}
}
