package suggest

import "testing"

func TestNearest(t *testing.T) {
	keys := []string{"batch_size", "max_steps", "learning_rate", "lr_scheduler", "d_model", "T4", "A100-80GB", "0"}
	for _, c := range []struct{ word, want string }{
		{"batchsize", "batch_size"},
		{"bacth_size", "batch_size"},
		{"Learning-Rate", "learning_rate"},
		{"learning_rates", "learning_rate"},
		{"d_modle", "d_model"},
		{"t4", "T4"},
		{"a100 80gb", "A100-80GB"},
		{"momentum", ""},
		{"7", ""},
		{"", ""},
	} {
		got, ok := Nearest(c.word, keys)
		if got != c.want || ok != (c.want != "") {
			t.Errorf("Nearest(%q) = %q, %v; want %q", c.word, got, ok, c.want)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"abc", "abc", 0}, {"abc", "acb", 1}, {"kitten", "sitting", 3}, {"ğ", "g", 1},
	} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("distance(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
