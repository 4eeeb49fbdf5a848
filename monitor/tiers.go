package monitor

// How samples are thinned with age. The bound of what is kept is the sum of the
// tiers: 2760 samples, however long a run is.
const (
	recentSamples = 600  // as taken: ten minutes at one per second
	middleSamples = 720  // of middleLooks each: the two hours before
	oldSamples    = 1440 // of oldLooks each, a day; when they are full, pairs are merged
	middleLooks   = 10
	oldLooks      = 60
)

// tiers are the samples of a run, thinned with age. What is merged depends on the
// order of samples alone, not on their times: a clock may go backward.
type tiers struct {
	recent, middle, old []Sample
	each                int // looks of an old sample
}

// add takes the next sample.
func (t *tiers) add(s Sample) {
	t.recent = append(t.recent, s)
	if len(t.recent) > recentSamples {
		s, t.recent = t.recent[0], t.recent[1:]
		t.middle = append1(t.middle, s, middleLooks)
	}
	if len(t.middle) > middleSamples {
		s, t.middle = t.middle[0], t.middle[1:]
		t.each = max(t.each, oldLooks, s.looks())
		t.old = append1(t.old, s, t.each)
	}
	if len(t.old) > oldSamples {
		t.each *= 2
		n := 0
		for i := 0; i < len(t.old); i += 2 {
			if t.old[n] = t.old[i]; i+1 < len(t.old) {
				t.old[n] = merge(t.old[i], t.old[i+1])
			}
			n++
		}
		t.old = t.old[:n]
	}
}

// append1 adds a sample to a tier whose samples cover at most that many looks.
func append1(tier []Sample, s Sample, looks int) []Sample {
	if n := len(tier); n > 0 {
		if last := &tier[n-1]; last.looks()+s.looks() <= looks && near(last, &s, looks) {
			*last = merge(*last, s)
			return tier
		}
	}
	return append(tier, s)
}

// near reports whether two samples belong to one stretch of time: between a run and its
// resumption is a gap that curves must not cross.
func near(a, b *Sample, looks int) bool {
	gap := b.begin() - a.Time
	return gap < float64(6*looks) && gap > -float64(6*looks)
}

// all returns the samples in order.
func (t *tiers) all() []Sample {
	out := make([]Sample, 0, len(t.old)+len(t.middle)+len(t.recent))
	return append(append(append(out, t.old...), t.middle...), t.recent...)
}
