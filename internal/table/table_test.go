package table_test

import (
	"testing"

	"github.com/snug-ml/snug/internal/table"
)

func TestFormat(t *testing.T) {
	got := table.Format([][]string{{"name", "bytes", ""}, {"é", "12", "note"}, {"alone"}}, 1)
	want := "name   bytes\né         12  note\nalone\n"
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
