package few

import (
	"strings"
	"testing"
)

func TestOf(t *testing.T) {
	if got := Of([]int{}); got != "none" {
		t.Error(got)
	}
	if got := Of([]string{"a", strings.Repeat("é", 100)}); got != "a, "+strings.Repeat("é", 40)+"... (200 bytes)" {
		t.Error(got)
	}
	if got := Of([]string{" label", "text", "a b"}); got != `" label", text, a b` {
		t.Error(got)
	}
	if got := Of(make([]int, 10_000)); got != strings.Repeat("0, ", 9)+"0 and 9990 more" {
		t.Error(got)
	}
}
