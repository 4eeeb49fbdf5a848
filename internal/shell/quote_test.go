package shell

import (
	"os/exec"
	"strings"
	"testing"
)

// TestQuote: a shell reads the words back, and plain ones are not quoted.
func TestQuote(t *testing.T) {
	words := []string{"", "a b", "it's", `\`, "$HOME", "`id`", "*", "a\nb", "ü", "~", "!x", "{a,b}", "#", "a;b", "100%", "-x", "runs/mine"}
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = Quote(w)
	}
	out, err := exec.Command("sh", "-c", `printf '%s\0' `+strings.Join(quoted, " ")).Output() // #nosec G204 -- what is tested
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(out), strings.Join(words, "\x00")+"\x00"; got != want {
		t.Errorf("a shell reads %q, want %q", got, want)
	}
	for in, want := range map[string]string{"runs/mine": "runs/mine", "-x y": "'./-x y'", "-": "./-"} {
		if got := Path(in); got != want {
			t.Errorf("Path(%q) is %s, want %s", in, got, want)
		}
	}
}
