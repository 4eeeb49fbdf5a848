package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A token that no client can put in a header is refused before anything is
// loaded.
func TestTokensThatNobodyCanSend(t *testing.T) {
	dir := t.TempDir()
	for token, ok := range map[string]bool{
		"secret": true, "a.b-c_d~e+f/g=": true, "abc\n": true, " abc ": true, // from a file the ends are trimmed
		"two words": false, "a\nb": false, "gehäuse": false, "a\x00b": false, "a\x7fb": false, "\u202eabc": false, "\xff": false,
		strings.Repeat("x", maxToken+1): false,
	} {
		path := filepath.Join(dir, "token")
		if err := os.WriteFile(path, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := (&serveCmd{TokenFile: path}).token(); (err == nil) != ok {
			t.Errorf("%q in a file: %v", token, err)
		}
		if strings.Contains(token, "\x00") {
			continue // no variable holds it
		}
		t.Setenv(tokenVariable, token)
		if _, err := (&serveCmd{}).token(); (err == nil) != (ok && strings.TrimSpace(token) == token) {
			t.Errorf("%q in the variable: %v", token, err)
		}
	}
}
