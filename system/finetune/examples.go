package finetune

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"math"
	"slices"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/data"
	"github.com/snug-ml/snug/data/chat"
	"github.com/snug-ml/snug/data/token"
	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/system/corpus"
)

// prepared is the data to train on and the held-out data.
type prepared struct {
	train, heldOut *rows // heldOut is nil if nothing is held out
	files          map[string][]byte
	// unigram is the held-out loss of a model that only knows how often each token occurs in answers.
	unigram float64
}

// rows holds conversations packed into windows. A token is stored as its id, or as ^id if it is part of an
// answer.
type rows struct {
	length  int
	tokens  []int32
	talks   []span  // conversations, as ranges of tokens
	packed  [][]int // the conversations of each row
	answers int64   // number of tokens to learn
	sum     hash.Hash
}

// span is a half-open range of tokens.
type span struct{ from, to int }

// counts is what was found in the data, for messages.
type counts struct{ talks, texts, cut, dropped, silent int }

// prepare reads, tokenizes and packs the conversations.
func prepare(ctx context.Context, c *config.Config, log func(string, ...any)) (*prepared, error) {
	folder := config.Of[Model](c).Folder
	t, err := token.LoadFolder(folder)
	if err != nil {
		return nil, err
	}
	net, err := network(c)
	if err != nil {
		return nil, err
	}
	if v := net.Dims().Vocab; t.VocabSize() > v {
		return nil, fmt.Errorf("%s: the tokenizer has %d tokens, the model takes %d", folder, t.VocabSize(), v)
	}
	f, err := chat.Load(folder, config.Of[Data](c).ChatTemplate)
	if err != nil {
		return nil, fmt.Errorf("data.chat_template: %w", err)
	}
	p := &prepared{train: newRows(c)}
	if p.files, err = t.Files(); err != nil {
		return nil, err
	}
	p.files[chat.TemplateFile] = []byte(f.Source)
	held := newRows(c)
	r := &reader{c: c, tokenizer: t, format: f, log: log}
	own := len(c.Data.Validation) > 0
	trained := map[uint64]bool{} // conversations that data.validation may repeat
	if err := r.read(ctx, c.Data.Source, func(print uint64) *rows {
		if own {
			trained[print] = true
		} else if float64(print)/math.MaxUint64 < c.Data.HeldOutFraction {
			return held
		}
		return p.train
	}); err != nil {
		return nil, err
	}
	if p.train.answers == 0 {
		return nil, r.nothing(held)
	}
	if own {
		checked, repeated := 0, 0
		if err := r.read(ctx, c.Data.Validation, func(print uint64) *rows {
			checked++
			if trained[print] {
				repeated++
			}
			return held
		}); err != nil {
			return nil, fmt.Errorf("data.validation: %w", err)
		}
		if repeated > 0 {
			log("data: %d of %d held-out conversations also occur in the training data, so the held-out loss partly measures memorization", repeated, checked)
		}
	}
	n := &r.counts
	log("data: %s, %s; %d cut at %d tokens, %d too long, %d without an answer to learn", size.Of(n.talks, "conversation"), size.Of(n.texts, "text"), n.cut, c.Data.SeqLen, n.dropped, n.silent)
	p.train.pack()
	log("data: %s of %d tokens to train on, %.1f %% filled, %.1f %% of the tokens are answers", size.Of(p.train.Len(), "row"), p.train.length,
		100*float64(len(p.train.tokens))/float64(p.train.Len()*p.train.length), 100*float64(p.train.answers)/float64(len(p.train.tokens)))
	if !c.Data.HoldsOut() {
		return p, nil
	}
	if held.answers == 0 {
		return nil, errors.New("no conversation is held out: raise data.held_out_fraction, name files with data.validation, or set data.held_out_fraction to 0")
	}
	held.pack()
	p.heldOut, p.unigram = held, unigram(p.train, held, net.Dims().Vocab)
	return p, nil
}

func newRows(c *config.Config) *rows { return &rows{length: c.Data.SeqLen, sum: sha256.New()} }

// reader tokenizes conversations.
type reader struct {
	c         *config.Config
	tokenizer *token.Tokenizer
	format    *chat.Format
	counts    counts
	log       func(string, ...any)
}

// read adds each conversation of files to the rows that into returns for its fingerprint.
func (r *reader) read(ctx context.Context, patterns []string, into func(print uint64) *rows) error {
	d := &r.c.Data
	opt := data.Options{TextField: messagesField, ArrayKey: d.ArrayKey, MaxRecord: int64(d.MaxRecord), ReplaceInvalid: d.ReplaceInvalid}
	if d.Format != "auto" {
		opt.Format = d.Format
	}
	files, err := data.OpenFiles(patterns, opt, d.CacheDir)
	if err != nil {
		return err
	}
	files.TellLeft(r.log)
	for rec, err := range files.Records() {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		if err := r.add(rec, into); err != nil {
			return fmt.Errorf("%s: %w", rec.Where(), err)
		}
	}
	return nil
}

// nothing returns the reason why there is no conversation to train on.
func (r *reader) nothing(held *rows) error {
	d, n := &r.c.Data, &r.counts
	switch {
	case n.talks == 0:
		return errors.New("data.source: there is nothing to train on: the files have no conversations")
	case held.answers > 0:
		return fmt.Errorf("nothing left to train on: the held-out share of %v took all %d conversations; lower data.held_out_fraction, choose another data.shuffle_seed, or name files in data.validation", d.HeldOutFraction, n.talks)
	case n.dropped > 0:
		return fmt.Errorf("nothing left to train on: %d texts of %d conversations are longer than data.seq_len (%d tokens), and data.too_long drops them: raise data.seq_len, or set data.too_long to cut", n.dropped, n.talks, d.SeqLen)
	case n.cut > 0:
		return fmt.Errorf("nothing left to train on: in all %d conversations the first answer begins after data.seq_len (%d tokens), where %d texts are cut: raise it", n.talks, d.SeqLen, n.cut)
	}
	return fmt.Errorf("data.source has no answer to train on in %d conversations: want messages of the role assistant", n.talks)
}

func (r *reader) add(rec data.Record, into func(print uint64) *rows) error {
	for _, key := range []string{"tools", "functions"} {
		if slices.Contains(rec.Fields(), key) {
			return fmt.Errorf("%s: conversations with tools are not supported", key)
		}
	}
	v, err := rec.Get(messagesField)
	if err != nil {
		return err
	}
	messages, err := chat.Read(v)
	if err != nil {
		return fmt.Errorf("%s: %w", messagesField, err)
	}
	examples, err := r.format.Examples(messages)
	if err != nil {
		return err
	}
	r.counts.talks++
	if len(examples) == 0 {
		r.counts.silent++
		return nil
	}
	// All texts of a conversation are on the same side of the split.
	to := into(fingerprint(r.c.Data.ShuffleSeed, messages))
	for _, e := range examples {
		if ids := r.tokens(e); ids != nil {
			r.counts.texts++
			to.add(ids)
		}
	}
	return nil
}

// fingerprint returns a number that depends only on the seed and the conversation.
func fingerprint(seed uint64, messages []chat.Message) uint64 {
	h := sha256.New()
	_, _ = fmt.Fprint(h, seed)              // a hash never fails to write,
	_ = json.NewEncoder(h).Encode(messages) // and texts have a JSON form
	return binary.LittleEndian.Uint64(h.Sum(nil))
}

// tokens returns the tokens of a text, with ^id for those to be learned, or nil if there are none to learn.
func (r *reader) tokens(e chat.Example) []int32 {
	ids := r.tokenizer.Encode(nil, e.Text)
	learned := false
	length := r.c.Data.SeqLen
	switch {
	case len(ids) <= length:
	case config.Of[Data](r.c).TooLong == "drop":
		r.counts.dropped++
		return nil
	default:
		r.counts.cut++
	}
	out := slices.Clone(ids)
	for _, a := range e.Answers {
		// A token that spans the border of an answer is part of it.
		from, to := common(ids, r.tokenizer.Encode(nil, a.Before)), common(ids, r.tokenizer.Encode(nil, a.Until))
		for to > from+1 && r.tokenizer.IsSpecial(last(ids, from, to)) && !r.tokenizer.IsSpecial(ids[to-1]) {
			to-- // the model need not write the whitespace after the end of a turn
		}
		for i := max(from, 1); i < min(to, length); i++ {
			out[i], learned = ^ids[i], true
		}
	}
	if !learned {
		r.counts.silent++
		return nil
	}
	return out[:min(len(out), length)]
}

// last returns the second-to-last token in ids[from:to], or the only one.
func last(ids []int32, from, to int) int32 { return ids[max(from, to-2)] }

// common returns the number of tokens in the common prefix of two texts.
func common(a, b []int32) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

func (x *rows) add(ids []int32) {
	from := len(x.tokens)
	x.tokens = append(x.tokens, ids...)
	x.talks = append(x.talks, span{from, len(x.tokens)})
	for _, id := range ids {
		if id < 0 {
			x.answers++
		}
	}
	_ = binary.Write(x.sum, binary.LittleEndian, ids) // a hash never fails to write
}

// pack puts the conversations into rows, the longest first, each into the fullest row with enough room.
func (x *rows) pack() {
	order := make([]int, len(x.talks))
	for i := range order {
		order[i] = i
	}
	size := func(i int) int { return x.talks[i].to - x.talks[i].from }
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(size(b), size(a)) })
	room := make([][]int, x.length+1) // rows by the number of tokens they have room for
	for _, i := range order {
		n := size(i)
		row := -1
		for left := n; left <= x.length; left++ {
			if k := len(room[left]); k > 0 {
				row, room[left] = room[left][k-1], room[left][:k-1]
				room[left-n] = append(room[left-n], row)
				break
			}
		}
		if row < 0 {
			row = len(x.packed)
			x.packed = append(x.packed, nil)
			room[x.length-n] = append(room[x.length-n], row)
		}
		x.packed[row] = append(x.packed[row], i)
	}
}

// These are the fields of an example, which is a row.
const (
	fieldIDs = iota
	fieldLabels
	fieldWeights
	fieldSegments
	fieldPositions
)

// ID implements [data.Examples].
func (x *rows) ID() string { return fmt.Sprintf("%s-%d", hex.EncodeToString(x.sum.Sum(nil)), x.length) }

// Fields implements [data.Examples].
func (x *rows) Fields() []data.Field {
	field := func(name string) data.Field { return data.Field{Name: name, Shape: []int{x.length}} }
	weights := field(corpus.InputWeights)
	weights.Float = true
	return []data.Field{field(corpus.InputIDs), field(corpus.InputLabels), weights, field(corpus.InputSegments), field(inputPositions)}
}

// Len implements [data.Examples].
func (x *rows) Len() int { return len(x.packed) }

// Length implements [data.Examples].
func (x *rows) Length(int) int { return 0 }

// Fill implements [data.Examples]. The label of a token is the next token of its conversation, which counts
// if it is part of an answer.
func (x *rows) Fill(i int, row data.Row) (weight float32, err error) {
	for f := range row.Ints {
		clear(row.Ints[f])
		clear(row.Floats[f])
	}
	ids, labels, segments, positions, weights := row.Ints[fieldIDs], row.Ints[fieldLabels], row.Ints[fieldSegments], row.Ints[fieldPositions], row.Floats[fieldWeights]
	at := 0
	for n, k := range x.packed[i] {
		for j, id := range x.tokens[x.talks[k].from:x.talks[k].to] {
			segments[at], positions[at] = int32(n), int32(j)
			if id < 0 {
				id = ^id
				labels[at-1], weights[at-1] = id, 1
				weight++
			}
			ids[at] = id
			at++
		}
	}
	for ; at < x.length; at++ { // padding is a conversation of its own
		segments[at] = int32(len(x.packed[i]))
	}
	return weight, nil
}

// unigram returns the mean loss of held-out answers given the token frequencies in training answers, with one
// added to each count.
func unigram(learned, held *rows, vocab int) float64 {
	seen := make([]float64, vocab)
	total := float64(vocab)
	for _, id := range learned.tokens {
		if id < 0 {
			seen[^id]++
			total++
		}
	}
	sum := 0.0
	for _, id := range held.tokens {
		if id < 0 {
			sum -= math.Log((seen[^id] + 1) / total)
		}
	}
	return sum / float64(held.answers)
}
