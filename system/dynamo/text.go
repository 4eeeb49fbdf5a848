package dynamo

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/data"
	"github.com/snug-ml/snug/internal/durable"
	"github.com/snug-ml/snug/internal/regular"
	"github.com/snug-ml/snug/internal/size"
)

// text is one example of a task, as text.
type text struct {
	// Input is the text to read. For a question, it is the text that contains the answer.
	Input    string `json:"input"`
	Question string `json:"question,omitempty"`
	// Output is the target text, or the answer, which is at byte Start of Input. Other answers count as well.
	Output string   `json:"output,omitempty"`
	Start  int      `json:"start,omitempty"`
	Others []string `json:"others,omitempty"`
	Label  int      `json:"label,omitempty"` // the class
	// Where is its origin, for messages. Texts of the same Group stay together in a split.
	Where string `json:"where"`
	Group string `json:"group"`
}

// key identifies a text.
func (t *text) key() string { return t.Question + "\x00" + t.Input }

// right returns the answers that count as right.
func (t *text) right() []string { return append([]string{t.Output}, t.Others...) }

// hash orders texts pseudo-randomly, in the same way on every machine.
func hash(seed uint64, s string) uint64 {
	sum := sha256.Sum256(append(binary.LittleEndian.AppendUint64(nil, seed), s...))
	return binary.LittleEndian.Uint64(sum[:])
}

// split is the data that a task is trained and measured on.
type split struct {
	train, held []text
	// repeated counts held-out texts that were dropped because they are trained on.
	repeated int
}

// cut holds out a share of the groups if no files are named for that, drops held-out texts that are also
// trained on, and takes the configured numbers of texts.
func cut(c *config.Config, t *Task, train, held []text) split {
	seed := c.Data.ShuffleSeed
	if len(t.Validation) == 0 {
		var rest []text
		for _, x := range train {
			if float64(hash(seed, "split "+x.Group))/(1<<64) < c.Data.HeldOutFraction {
				held = append(held, x)
			} else {
				rest = append(rest, x)
			}
		}
		train = rest
	}
	s := split{train: sample(train, t.Examples, seed)}
	known := map[string]bool{}
	for i := range train {
		known[train[i].key()] = true
	}
	fresh := slices.DeleteFunc(slices.Clone(held), func(x text) bool { return known[x.key()] })
	s.repeated = len(held) - len(fresh)
	s.held = sample(fresh, t.HeldOut, seed)
	return s
}

// sample draws n of the texts at random (0: all), each at most once.
func sample(x []text, n int, seed uint64) []text {
	type ordered struct {
		at  uint64
		key string
		text
	}
	all := make([]ordered, len(x))
	for i, t := range x {
		all[i] = ordered{hash(seed, t.key()), t.key(), t}
	}
	slices.SortStableFunc(all, func(a, b ordered) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.key, b.key))
	})
	all = slices.CompactFunc(all, func(a, b ordered) bool { return a.key == b.key })
	if n > 0 {
		all = all[:min(n, len(all))]
	}
	out := make([]text, len(all))
	for i := range all {
		out[i] = all[i].text
	}
	return out
}

// reader reads texts from files or, for tasks without files, from the Go source tree, which is read once and
// kept below cache.
type reader struct {
	config *config.Config
	cache  string
	log    func(string, ...any)
	tree   map[string][]text
	// found is what keep writes to path, if the tree was read.
	found []byte
	path  string
}

// texts returns the texts of a task.
func (s *reader) texts(ctx context.Context, name string) (split, error) {
	t := taskOf(s.config, name)
	train, err := s.read(ctx, name, t, t.Train)
	if err != nil {
		return split{}, err
	}
	var held []text
	if len(t.Validation) > 0 {
		if held, err = s.read(ctx, name, t, t.Validation); err != nil {
			return split{}, err
		}
	}
	x := cut(s.config, t, train, held)
	switch {
	case len(x.train) == 0:
		switch {
		case len(train) == 0 && len(t.Train) > 0:
			return x, fmt.Errorf("tasks.%s.train: there is nothing to train on: the files have no examples", name)
		case len(train) == 0:
			return x, fmt.Errorf("task %s: there is nothing to train on: the Go source tree gave no examples", name)
		}
		return x, fmt.Errorf("task %s: nothing left to train on: the held-out share of %v took all %d examples; lower data.held_out_fraction, choose another data.shuffle_seed, or name files in tasks.%s.validation", name, s.config.Data.HeldOutFraction, len(train), name)
	case len(x.held) == 0:
		return x, fmt.Errorf("task %s: no examples are held out; name files in tasks.%s.validation or raise data.held_out_fraction", name, name)
	}
	if x.repeated > 0 {
		s.log("data: %s: evaluations skip what is trained on too: %s", name, size.Of(x.repeated, "held-out text"))
	}
	return x, nil
}

func (s *reader) read(ctx context.Context, name string, t *Task, files []string) ([]text, error) {
	if len(files) > 0 {
		return readFiles(ctx, &s.config.Data, name, t, files, s.log)
	}
	if s.tree == nil {
		var err error
		if s.tree, err = s.goTree(ctx); err != nil {
			return nil, err
		}
	}
	return s.tree[name], nil
}

// goTree reads the tasks of the Go source tree, from the cache if they are there.
func (s *reader) goTree(ctx context.Context) (map[string][]text, error) {
	tree, err := data.OpenGoTree(data.GoTreeOptions{})
	if err != nil {
		return nil, err
	}
	print, err := tree.Fingerprint()
	if err != nil {
		return nil, err
	}
	s.path = filepath.Join(s.cache, fmt.Sprintf("go-tasks-%x.json", sha256.Sum256([]byte(treeVersion+print)))[:len("go-tasks-")+16]+".json")
	raw, err := regular.Read(s.path, regular.Log)
	if err == nil {
		var out map[string][]text
		return out, json.Unmarshal(raw, &out)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	found, err := goTasks(ctx, tree, s.log)
	if err != nil {
		return nil, err
	}
	if s.found, err = json.Marshal(found); err != nil {
		return nil, err
	}
	// Decode what later runs will read, because JSON replaces bytes that are not UTF-8.
	var out map[string][]text
	return out, json.Unmarshal(s.found, &out)
}

// keep saves what was read from the Go source tree.
func (s *reader) keep() error {
	if s.found == nil {
		return nil
	}
	if err := os.MkdirAll(s.cache, 0o777); err != nil {
		return err
	}
	return durable.Replace(s.path, s.found)
}
