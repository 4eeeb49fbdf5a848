package session

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/configs"
)

// quickstarts returns the names of the quickstart presets.
func quickstarts(t *testing.T) (names []string) {
	t.Helper()
	files, err := configs.FS.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if name, ok := strings.CutSuffix(f.Name(), ".yaml"); ok && strings.HasSuffix(name, "quickstart") {
			names = append(names, name)
		}
	}
	if len(names) < 5 {
		t.Fatalf("only %v", names)
	}
	return names
}

// loaded resolves a preset with settings.
func loaded(t *testing.T, preset string, settings []config.Override) *Setup {
	t.Helper()
	s, err := Load(context.Background(), config.Sources{Preset: preset, Overrides: settings}, nil)
	if err != nil {
		t.Fatalf("%s %v: %v", preset, settings, err)
	}
	return s
}

// TestShorter requests a shorter training of every quickstart on machines of several speeds. Its flags must
// be settings of that system, and everything that depends on the length must keep its share.
func TestShorter(t *testing.T) {
	for _, preset := range quickstarts(t) {
		t.Run(preset, func(t *testing.T) {
			s := loaded(t, preset, nil)
			if got := s.shorter(Expected{Updating: 299}, 10); got != nil {
				t.Errorf("a run of less than five minutes could be %v", got)
			}
			for _, minutes := range []float64{8, 30, 300} {
				e := Expected{Runs: 1, Updates: 1000, Evaluations: 4, Updating: 50 * minutes, Evaluating: 8 * minutes, Reporting: 2 * minutes, Slow: 1}
				short := s.shorter(e, 40)
				if short == nil {
					t.Fatalf("nothing shorter than %v minutes", minutes)
				}
				if short.Seconds > 60*minutes || minutes < 100 && short.Seconds > 1.01*QuickRun.Seconds() {
					t.Errorf("of %v minutes the shorter one takes %v s", minutes, short.Seconds)
				}
				hold(t, s, loaded(t, preset, short.Flags), short)
			}
		})
	}
}

// hold compares the settings of a shorter training with those that it was made from.
func hold(t *testing.T, whole, part *Setup, short *Shorter) {
	t.Helper()
	text := short.String()
	count := func(s *Setup, key string) float64 {
		for _, v := range s.Config.Values() {
			if v.Key == key {
				n, err := strconv.ParseFloat(v.Text, 64)
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
		}
		t.Fatalf("no setting %s", key)
		return 0
	}
	shares := []float64{}
	for _, f := range short.Flags {
		if !strings.Contains(text, "--"+f.Key+" "+f.Text) {
			t.Errorf("%q lacks %s %s", text, f.Key, f.Text)
		}
		if strings.HasSuffix(f.Key, "steps") {
			was, is := count(whole, f.Key), count(part, f.Key)
			if is < 1 || is > was {
				t.Errorf("%s: %v of %v", f.Key, is, was)
			}
			if was >= 100 && is > 5 {
				shares = append(shares, is/was)
			}
		}
	}
	slices.Sort(shares)
	if len(shares) == 0 || shares[len(shares)-1] > 1.2*shares[0] {
		t.Errorf("%s: of the updates there are shares %.3f", text, shares)
	}
	if w, s := whole.Config.Training, part.Config.Training; s.WarmupSteps*w.MaxSteps > 2*w.WarmupSteps*s.MaxSteps {
		t.Errorf("%s: warm-up takes %d of %d updates, where it was %d of %d", text, s.WarmupSteps, s.MaxSteps, w.WarmupSteps, w.MaxSteps)
	}
}
