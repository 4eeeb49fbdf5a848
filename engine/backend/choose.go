package backend

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine/cuda"
	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/internal/size"
)

// Candidate is a card that may be chosen. It was not opened.
type Candidate struct {
	Index int
	*device.Card
	// Free is how much of its memory is free, in bytes; -1: nobody says.
	Free int64

	speed float64 // of matmuls, in FLOP/s
}

func (c Candidate) String() string {
	text := fmt.Sprintf("cuda:%d (%s", c.Index, c.Name)
	if c.Free >= 0 {
		text += fmt.Sprintf(", %s free", size.Bytes(c.Free))
	}
	return text + ")"
}

// room is the memory that it has or, where nobody says what is free, may have.
func (c Candidate) room() int64 {
	if c.Free >= 0 {
		return c.Free
	}
	return c.Usable
}

// field is the cards to choose from, the best first, and what keeps others from being chosen.
type field struct {
	cards   []Candidate
	refused []error
	unread  error // why nobody says what memory is free; nil: somebody does
}

// candidates are the cards on which o's precision can be computed, the fastest first and of
// equally fast ones that with the most free memory.
func (o Options) candidates(cards []driver.Card) *field {
	f := &field{}
	l, err := openMonitor()
	f.unread = err
	var unable []Candidate // to compute in that precision
	var why []error
	for _, c := range cards {
		if err := cuda.Supports(c); err != nil {
			f.refused = append(f.refused, fmt.Errorf("cuda:%d: %w", c.Index, err))
			continue
		}
		k := Candidate{Index: c.Index, Card: known(c), Free: -1}
		if l != nil {
			if s, ok := l.Sample(c.UUID); ok && s.Used >= 0 && s.Total >= 0 {
				k.Free = s.Total - s.Used
			} else {
				f.unread = fmt.Errorf("NVIDIA's management library says nothing of cuda:%d", c.Index)
			}
		}
		precision, _, err := device.ChoosePrecision(o.Precision, k.Card)
		if err != nil {
			unable, why = append(unable, k), append(why, fmt.Errorf("cuda:%d: %w", c.Index, err))
			continue
		}
		k.speed, _ = k.MatmulRate(precision)
		f.cards = append(f.cards, k)
	}
	if len(f.cards) == 0 {
		f.cards = unable // the precision is refused, not the card
	} else {
		f.refused = append(f.refused, why...)
	}
	slices.SortStableFunc(f.cards, func(a, b Candidate) int {
		return cmp.Or(cmp.Compare(b.speed, a.speed), cmp.Compare(b.Free, a.Free))
	})
	return f
}

// first puts a card before all others.
func (f *field) first(i int) {
	f.cards = slices.Concat(f.cards[i:i+1], f.cards[:i], f.cards[i+1:])
}

// choose puts the card first that is to be opened, and says why it is, of several.
func (f *field) choose(fits func(Candidate) (bool, error)) (why string, err error) {
	if len(f.cards) == 0 {
		return "", nil
	}
	var small []string // faster ones that have too little room
	tight := func() bool {
		return slices.ContainsFunc(f.cards[1:], func(c Candidate) bool { return c.room() > f.cards[0].room() })
	}
	if fits != nil && tight() { // else what does not fit on the first fits on none
		for i, c := range f.cards {
			ok, err := fits(c)
			if err != nil {
				return "", err
			}
			if ok {
				f.first(i)
				break
			}
			small = append(small, c.String())
		}
	}
	first, rest := f.cards[0], f.cards[1:]
	equal := 1
	for _, c := range rest {
		if c.speed == first.speed {
			equal++
		}
	}
	switch {
	case len(small) > len(rest):
		most := slices.MaxFunc(f.cards, func(a, b Candidate) int { return cmp.Compare(a.room(), b.room()) })
		at := slices.IndexFunc(f.cards, func(c Candidate) bool { return c.Index == most.Index })
		f.first(at)
		first, why = most, "the plan fits on no card, and this one has the most memory for it"
	case len(small) > 0:
		why = "the fastest card that the plan fits on, which it does not on " + strings.Join(small, ", ")
	case len(rest) == 0:
	case equal == 1:
		why = fmt.Sprintf("the fastest of %d cards", len(f.cards))
	case first.Free > rest[0].Free:
		why = fmt.Sprintf("of %d equally fast cards the one with the most free memory", equal)
	default:
		why = fmt.Sprintf("the first of %d equally fast cards", equal)
	}
	if f.unread != nil && len(rest) > 0 {
		why += fmt.Sprintf("; what memory is free was not looked at (%v)", f.unread)
	}
	for _, e := range f.refused {
		why = strings.TrimPrefix(why+"; "+e.Error(), "; ")
	}
	if why == "" {
		return "", nil
	}
	return fmt.Sprintf("%v computes: %s (hardware.device: cuda:N takes another)", first, strings.ReplaceAll(why, "\n", "; ")), nil
}

// best opens the card that suits o best.
func (o Options) best(d driver.Driver, cards []driver.Card) (*cuda.Backend, error) {
	f := o.candidates(cards)
	for len(f.cards) > 0 {
		why, err := f.choose(o.Fits)
		if err != nil {
			return nil, err
		}
		b, err := open(d, cards[f.cards[0].Index])
		if err == nil {
			if o.Chosen != nil && why != "" {
				o.Chosen(why)
			}
			return b, nil
		}
		f.refused, f.cards = append(f.refused, err), f.cards[1:]
	}
	return nil, &Refused{errors.Join(append([]error{errors.New("no card can be used")}, f.refused...)...)}
}
