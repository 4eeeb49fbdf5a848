package moderation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/data"
	"github.com/snug-ml/snug/internal/few"
	"github.com/snug-ml/snug/internal/size"
)

// sample is a labeled text.
type sample struct {
	text     string
	positive bool
	where    string // file:line, for messages
	folder   string // kept together by data.split_by folder
}

// splits holds the texts of a run and the duplicates found in them.
type splits struct {
	train, valid, test []sample
	duplicates         duplicates
}

// read reads the configured texts and cuts the splits that have no files of their own.
func read(ctx context.Context, c *config.Config, log func(string, ...any)) (*splits, error) {
	d := config.Of[Data](c)
	words, err := newLabelWords(d)
	if err != nil {
		return nil, err
	}
	files := func(patterns []string) ([]sample, error) {
		if len(patterns) == 0 {
			return nil, nil
		}
		return readFiles(ctx, c, patterns, words, log)
	}
	s := &splits{}
	if c.Data.Format == "gotree" {
		s.train, err = docComments(ctx, log)
	} else {
		s.train, err = files(c.Data.Source)
	}
	if err != nil {
		return nil, err
	}
	if s.valid, err = files(c.Data.Validation); err != nil {
		return nil, err
	}
	if s.test, err = files(d.Test); err != nil {
		return nil, err
	}
	read := len(s.train)
	s.cut(c, len(c.Data.Validation) == 0, len(d.Test) == 0)
	s.duplicates = s.find()
	if d.Duplicates == "drop" {
		s.drop()
	}
	return s, s.check(c, read)
}

// readFiles reads rows of a text and a label.
func readFiles(ctx context.Context, c *config.Config, patterns []string, words *labelWords, log func(string, ...any)) ([]sample, error) {
	d := config.Of[Data](c)
	opt := data.Options{
		NoHeader: d.NoHeader, ArrayKey: c.Data.ArrayKey, MaxRecord: int64(c.Data.MaxRecord), ReplaceInvalid: c.Data.ReplaceInvalid,
	}
	if c.Data.Format != "auto" && c.Data.Format != "gotree" {
		opt.Format = c.Data.Format
	}
	f, err := data.OpenFiles(patterns, opt, c.Data.CacheDir)
	if err != nil {
		return nil, err
	}
	f.TellLeft(log)
	var out []sample
	replaced, empty := 0, 0
	for r, err := range f.Records() {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		text, err := r.Text(c.Data.TextField)
		if err != nil {
			return nil, fmt.Errorf("%w (data.text_field chooses the field)", err)
		}
		label, err := labelText(r, d.LabelField)
		if err != nil {
			return nil, fmt.Errorf("%w (data.label_field chooses the field)", err)
		}
		positive, err := words.positive(label)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.Where(), err)
		}
		replaced += r.Repaired()
		if strings.TrimSpace(text) == "" {
			empty++
		}
		out = append(out, sample{text, positive, r.Where(), path.Dir(filepath.ToSlash(r.File))})
	}
	if empty > 0 {
		log("data: %d of %d texts in %s are empty", empty, len(out), strings.Join(patterns, ", "))
	}
	if replaced > 0 {
		log("data: invalid UTF-8 in %s is replaced by U+FFFD (data.replace_invalid): %s", strings.Join(patterns, ", "), size.Of(replaced, "byte"))
	}
	return out, nil
}

// labelText returns a label as text, because JSON and Parquet also have booleans.
func labelText(r data.Record, field string) (string, error) {
	v, err := r.Get(field)
	if err != nil {
		return "", err
	}
	switch v := v.(type) {
	case bool:
		return strconv.FormatBool(v), nil
	case int64:
		return strconv.FormatInt(v, 10), nil
	}
	return r.Text(field)
}

// labelWords maps labels to classes.
type labelWords struct {
	meaning map[string]bool
	all     []string
}

func newLabelWords(d *Data) (*labelWords, error) {
	w := &labelWords{meaning: map[string]bool{}}
	for positive, words := range map[bool][]string{true: d.Positive, false: d.Negative} {
		if len(words) == 0 {
			return nil, fmt.Errorf("data.positive_labels and data.negative_labels: want at least one word each")
		}
		for _, word := range words {
			w.meaning[strings.ToLower(word)] = positive
		}
	}
	w.all = slices.Concat(d.Positive, d.Negative)
	return w, nil
}

func (w *labelWords) positive(label string) (bool, error) {
	p, ok := w.meaning[strings.ToLower(strings.TrimSpace(label))]
	if !ok {
		return false, fmt.Errorf("label %.40q is not one of %s; add it to data.positive_labels or data.negative_labels", label, few.Of(w.all))
	}
	return p, nil
}

// normal returns a text as compared to find duplicates: in lower case and with single spaces.
func normal(text string) string { return strings.ToLower(strings.Join(strings.Fields(text), " ")) }

// cut moves shares of the training texts to the splits that have no files. The split of a text depends on the
// seed and on its folder (with data.split_by folder) or its normal text, so repeats stay on one side.
func (s *splits) cut(c *config.Config, valid, test bool) {
	d := config.Of[Data](c)
	held := 0.0
	if valid {
		held = c.Data.HeldOutFraction
	}
	kept := 0.0
	if test {
		kept = d.TestShare
	}
	var train []sample
	for _, x := range s.train {
		key := normal(x.text)
		if c.Data.SplitBy == "folder" {
			key = x.folder
		}
		switch u := uniform(c.Data.ShuffleSeed, key); {
		case u < held:
			s.valid = append(s.valid, x)
		case u < held+kept:
			s.test = append(s.test, x)
		default:
			train = append(train, x)
		}
	}
	s.train = train
}

// uniform returns a number in [0, 1) that depends only on seed and key.
func uniform(seed uint64, key string) float64 {
	h := fnv.New64a()
	// A hash never fails to write.
	_, _ = fmt.Fprintf(h, "%d %s", seed, key)
	// The high bits of FNV differ little for short keys; a finalizer (splitmix64) spreads them.
	x := h.Sum64()
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return float64((x^x>>31)>>11) / (1 << 53)
}

// check rejects splits that cannot be learned from or measured on. read is the number of texts in
// data.source.
func (s *splits) check(c *config.Config, read int) error {
	const hint = "choose another data.shuffle_seed"
	d := config.Of[Data](c)
	valid, test := c.Data.Validation, d.Test
	held, kept := c.Data.HeldOutFraction, d.TestShare
	if len(test) > 0 {
		kept = 0
	}
	switch {
	case read == 0:
		return errors.New("data.source: there is nothing to train on: the files have no rows")
	case len(valid) > 0 && len(s.valid) == 0:
		return noRows("data.validation", valid)
	case len(test) > 0 && len(s.test) == 0:
		return noRows("data.test", test)
	case len(s.train) == 0 && s.duplicates.Dropped > 0:
		return fmt.Errorf("nothing left to train on: %d of the %d texts of data.source are in another split too (data.duplicates)", s.duplicates.Dropped, read)
	case len(s.train) == 0:
		return fmt.Errorf("nothing left to train on: the held-out share of %v took all of the %d texts of data.source (equal texts stay together); lower data.held_out_fraction, or %s", held+kept, read, hint)
	case len(s.valid) == 0:
		return fmt.Errorf("no validation texts: none of the %d texts of data.source fell into the held-out share of %v; raise data.held_out_fraction, %s, or name files in data.validation", read, held, hint)
	}
	for _, x := range []struct {
		name    string
		samples []sample
		key     string
		cut     bool // from data.source, or data.source after that
	}{
		{"training", s.train, "data.source", len(valid) == 0 && held > 0 || kept > 0},
		{"validation", s.valid, "data.validation", len(valid) == 0},
		{"test", s.test, "data.test", len(test) == 0},
	} {
		n := count(x.samples)
		if n > 0 && n < len(x.samples) || len(x.samples) == 0 { // there may be no test
			continue
		}
		what := "add texts of the other class to " + x.key
		if x.cut {
			what = hint
		}
		return fmt.Errorf("the %s texts are all of one class (%d flagged of %d): both are needed; check data.positive_labels and data.label_field, or %s", x.name, n, len(x.samples), what)
	}
	return nil
}

// noRows refuses files of a split that have nothing in them.
func noRows(key string, patterns []string) error {
	return fmt.Errorf("%s: %s: the files have no rows: want texts with labels of both classes, or leave the key out to hold out a share of data.source", key, few.Of(patterns))
}

// count returns the number of positives.
func count(samples []sample) (n int) {
	for _, x := range samples {
		if x.positive {
			n++
		}
	}
	return n
}

// duplicates describes the texts that occur more than once, ignoring case and repeated spaces.
type duplicates struct {
	// Within counts the texts of a split that repeat an earlier text of the same split.
	Within map[string]int `json:"within"`
	// Across counts the texts of the first split of a pair that are also in the second.
	Across map[string]int `json:"across"`
	// Conflicts counts the texts that occur with both labels, in any splits.
	Conflicts int `json:"with_both_labels"`
	// Dropped counts the training texts that are not trained on because they are in another split.
	Dropped int `json:"dropped_from_training"`
	// Examples are a few of the texts in several splits, shortened.
	Examples []duplicateExample `json:"examples,omitempty"`
}

type duplicateExample struct {
	Text  string   `json:"text"`
	Where []string `json:"where"`
}

// find looks for texts that occur more than once.
func (s *splits) find() duplicates {
	const train, valid, test = 0, 1, 2
	names := [...]string{"train", "validation", "test"}
	type seen struct {
		at     [3]int
		labels [2]bool
		first  [3]string
		order  int
	}
	texts := map[string]*seen{}
	d := duplicates{Within: map[string]int{}, Across: map[string]int{}}
	for split, samples := range [...][]sample{s.train, s.valid, s.test} {
		for _, x := range samples {
			k := normal(x.text)
			t := texts[k]
			if t == nil {
				t = &seen{order: len(texts)}
				texts[k] = t
			}
			if t.at[split]++; t.at[split] == 1 {
				t.first[split] = x.where
			} else {
				d.Within[names[split]]++
			}
			if x.positive {
				t.labels[1] = true
			} else {
				t.labels[0] = true
			}
		}
	}
	type found struct {
		text string
		*seen
	}
	var across []found
	for k, t := range texts {
		if t.labels[0] && t.labels[1] {
			d.Conflicts++
		}
		for _, p := range [][2]int{{train, valid}, {train, test}, {valid, test}} {
			if t.at[p[0]] > 0 && t.at[p[1]] > 0 {
				d.Across[names[p[0]]+" in "+names[p[1]]] += t.at[p[0]]
			}
		}
		if t.at[train] > 0 && t.at[valid]+t.at[test] > 0 {
			across = append(across, found{k, t})
		}
	}
	slices.SortFunc(across, func(a, b found) int { return cmp.Compare(a.order, b.order) })
	for _, f := range across[:min(len(across), 5)] {
		e := duplicateExample{Text: shorten(f.text, 80)}
		for _, w := range f.first {
			if w != "" {
				e.Where = append(e.Where, w)
			}
		}
		d.Examples = append(d.Examples, e)
	}
	return d
}

func shorten(text string, runes int) string {
	if r := []rune(text); len(r) > runes {
		return string(r[:runes-1]) + "…"
	}
	return text
}

// drop removes the training texts that are in another split.
func (s *splits) drop() {
	held := map[string]bool{}
	for _, x := range slices.Concat(s.valid, s.test) {
		held[normal(x.text)] = true
	}
	n := len(s.train)
	s.train = slices.DeleteFunc(s.train, func(x sample) bool { return held[normal(x.text)] })
	s.duplicates.Dropped = n - len(s.train)
}
