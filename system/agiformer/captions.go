package agiformer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"
	"path/filepath"

	"github.com/snug-ml/snug/data"
	"github.com/snug-ml/snug/data/token"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/internal/regular"
	"github.com/snug-ml/snug/internal/strictjson"
	"github.com/snug-ml/snug/system/corpus"
	"github.com/snug-ml/snug/train"
)

// caption is a text and the media it describes, as listed in metadata_train.json and metadata_val.json of a
// folder. File names are relative to "images".
type caption struct {
	Text   string   `json:"caption"`
	Image  string   `json:"image_file"`
	Audio  string   `json:"audio_file"`
	Frames []string `json:"frame_files"`

	ids []int32 // the text, followed by the end of the document
}

// captions is one split of a folder.
type captions struct {
	net    Net
	dir    string
	images *regular.Folder // the folder dir
	length int             // tokens per row
	most   int64           // maximum size of an image in bytes
	list   []caption
	eos    int32
	weight float64 // total number of labels
	bytes  int64
	id     string
}

// openCaptions reads a split. Every file that is named must exist, and every entry must have the media of the
// model's senses.
func openCaptions(dir, split string, net Net, length int, most int64, t *token.Tokenizer) (c *captions, err error) {
	defer token.Catch(&err)
	path := filepath.Join(dir, "metadata_"+split+".json")
	raw, err := data.ReadFile(path, max(regular.Log, most))
	if err != nil {
		return nil, fmt.Errorf("data.source: a folder of captions has metadata_train.json and metadata_val.json: %w", err)
	}
	c = &captions{net: net, dir: filepath.Join(dir, "images"), length: length, most: most}
	if net.Senses != nil {
		if c.images, err = regular.NewFolder(c.dir); err != nil {
			return nil, fmt.Errorf("data.source: a folder of captions has a folder images: %w", err)
		}
	}
	if err := json.Unmarshal(raw, &c.list); err != nil {
		return nil, fmt.Errorf("%s: %w", path, strictjson.Explain(err))
	}
	if len(c.list) == 0 {
		return nil, fmt.Errorf("%s lists nothing", path)
	}
	c.eos, _ = t.Special(token.EOS)
	for i := range c.list {
		x := &c.list[i]
		if err := c.check(x); err != nil {
			return nil, fmt.Errorf("%s, entry %d: %w", path, i, err)
		}
		all := append(t.EncodeOrdinary(nil, []byte(x.Text)), c.eos)
		x.ids = all[:min(len(all), length)]
		c.weight += float64(len(x.ids))
		c.bytes += int64(len(x.Text) * len(x.ids) / len(all))
	}
	sum := sha256.Sum256(raw)
	c.id = hex.EncodeToString(sum[:])
	return c, nil
}

func (c *captions) check(x *caption) error {
	var missing error
	need := func(wanted bool, key string, names ...string) {
		for _, name := range names {
			switch {
			case !wanted:
			case name == "":
				missing = fmt.Errorf("it has no %q, which model.modalities asks for", key)
			default:
				path, err := c.images.Path(name)
				if err == nil {
					_, err = regular.Stat(path)
				}
				if err != nil {
					missing = fmt.Errorf("%q: %w", key, err)
				}
			}
		}
	}
	s := c.net.Senses
	need(s.Sees(modImage), "image_file", x.Image)
	need(s.Sees(modAudio), "audio_file", x.Audio)
	if frames := x.Frames; s.Sees(modVideo) && len(frames) != s.Frames {
		return fmt.Errorf("it has %d of the %d \"frame_files\" that model.video_frames asks for", len(frames), s.Frames)
	}
	need(s.Sees(modVideo), "frame_files", x.Frames...)
	if x.Text == "" {
		return fmt.Errorf("its caption is empty")
	}
	return missing
}

func (c *captions) path(name string) string { return filepath.Join(c.dir, filepath.FromSlash(name)) }

// fill writes the captions index (-1 for none) to the rows of a micro-batch.
func (c *captions) fill(index []int64, in train.Inputs) error {
	ids, err := in.I32(corpus.InputIDs)
	if err != nil {
		return err
	}
	labels, err := in.I32(corpus.InputLabels)
	if err != nil {
		return err
	}
	weights, err := in.F32(corpus.InputWeights)
	if err != nil {
		return err
	}
	c.texts(index, ids, labels, weights)
	for row, i := range index {
		var x caption
		if i >= 0 {
			x = c.list[i]
		}
		if err := c.sense(&x, row, len(index), in); err != nil {
			return err
		}
	}
	return nil
}

// texts writes a row for each caption. The inputs are the end of a document and the text; the labels are the
// text and the end of the document.
func (c *captions) texts(index []int64, ids, labels []int32, weights []float32) {
	for row, i := range index {
		from, to := row*c.length, (row+1)*c.length
		ids, labels, weights := ids[from:to], labels[from:to], weights[from:to]
		for k := range ids {
			ids[k], labels[k], weights[k] = c.eos, c.eos, 0
		}
		if i < 0 {
			continue
		}
		n := copy(labels, c.list[i].ids)
		copy(ids[1:], c.list[i].ids[:n-1])
		for k := range n {
			weights[k] = 1
		}
	}
}

// sense decodes the media of x into a row of the inputs. Without a file the row is 0.
func (c *captions) sense(x *caption, row, rows int, in train.Inputs) error {
	s := c.net.Senses
	part := func(name string) ([]float32, error) {
		all, err := in.F32(name)
		n := len(all) / rows
		return all[row*n : (row+1)*n], err
	}
	if s.Sees(modImage) {
		dst, err := part(modImage)
		if err == nil {
			err = c.picture(dst, x.Image)
		}
		if err != nil {
			return err
		}
	}
	if s.Sees(modAudio) {
		dst, err := part(modAudio)
		if err != nil {
			return err
		}
		clear(dst)
		if x.Audio != "" {
			if err := readWAV(dst, c.path(x.Audio)); err != nil {
				return err
			}
		}
	}
	if s.Sees(modVideo) {
		dst, err := part(modVideo)
		if err != nil {
			return err
		}
		n := len(dst) / s.Frames
		for f := range s.Frames {
			name := ""
			if f < len(x.Frames) {
				name = x.Frames[f]
			}
			if err := c.picture(dst[f*n:(f+1)*n], name); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *captions) picture(dst []float32, name string) error {
	clear(dst)
	if name == "" {
		return nil
	}
	return readPicture(dst, c.path(name), c.net.Senses.Image.Size, c.most)
}

// at returns the caption at a position in the stream of epochs.
func (c *captions) at(place int64, shuffle bool, seed uint64) int64 {
	n := int64(len(c.list))
	if !shuffle {
		return place % n
	}
	order := data.NewPermutation(n, seed, uint64(place/n))
	return order.At(place % n)
}

// captionLoader streams shuffled captions endlessly.
type captionLoader struct {
	*captions
	rows, micro int
	shuffle     bool
	seed        uint64
	place       int64
}

// captionCursor is a position in the stream of one folder.
type captionCursor struct {
	Folder string `json:"folder"`
	Place  int64  `json:"place"`
}

// Next implements [train.DataLoader].
func (f *captionLoader) Next() (train.Update, error) {
	n := f.rows * f.micro
	index := make([]int64, n)
	u := train.Update{Micro: f.micro, Tokens: int64(n * f.length)}
	for i := range index {
		index[i] = f.at(f.place+int64(i), f.shuffle, f.seed)
		u.Weight += float64(len(f.list[index[i]].ids))
	}
	f.place += int64(n)
	u.Fill = func(m int, in train.Inputs) error { return f.fill(index[m*f.rows:(m+1)*f.rows], in) }
	return u, nil
}

// Position implements [train.DataLoader].
func (f *captionLoader) Position() any { return captionCursor{f.id, f.place} }

// Seek implements [train.DataLoader].
func (f *captionLoader) Seek(raw json.RawMessage) error {
	var c captionCursor
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return err
	}
	if c.Folder != f.id || c.Place < 0 {
		return fmt.Errorf("the position belongs to other captions: metadata_train.json changed; start a new run")
	}
	f.place = c.Place
	return nil
}

// Close implements [train.DataLoader].
func (f *captionLoader) Close() {}

// pass implements [heldOut].
func (c *captions) pass(rows, limit int, read reader) train.Batches[tally] {
	labels, weights, ids := make([]int32, rows*c.length), make([]float32, rows*c.length), make([]int32, rows*c.length)
	index := make([]int64, rows)
	batch := train.EvalBatch[tally]{
		Fill: func(in train.Inputs) error { return c.fill(index, in) },
		Read: func(out train.Outputs) (tally, error) { return read(labels, weights, out) },
	}
	return func(ctx context.Context, _ *engine.Executable) iter.Seq2[train.EvalBatch[tally], error] {
		return func(yield func(train.EvalBatch[tally], error) bool) {
			for n := 0; n*rows < len(c.list) && (limit == 0 || n < limit); n++ {
				for i := range index {
					if index[i] = int64(n*rows + i); index[i] >= int64(len(c.list)) {
						index[i] = -1
					}
				}
				c.texts(index, ids, labels, weights)
				if !yield(batch, ctx.Err()) {
					return
				}
			}
		}
	}
}

// perByte returns the number of labels per byte of text.
func (c *captions) perByte() float64 { return c.weight / float64(c.bytes) }

// spoken presents the captions as one text, for baselines. It implements [data.Corpus].
type spoken struct {
	*captions
	stream []int32
	ends   []int64
}

func (c *captions) spoken() *spoken {
	s := &spoken{captions: c}
	for _, x := range c.list {
		s.stream = append(append(s.stream, x.ids[:len(x.ids)-1]...), c.eos)
		s.ends = append(s.ends, int64(len(s.stream)))
	}
	return s
}

func (s *spoken) ID() string                { return s.id }
func (s *spoken) VocabSize() int            { return s.net.Vocab }
func (s *spoken) EOS() int32                { return s.eos }
func (s *spoken) Tokens() int64             { return int64(len(s.stream)) }
func (s *spoken) Documents() int64          { return int64(len(s.ends)) }
func (s *spoken) Bytes() int64              { return s.bytes }
func (s *spoken) DocumentEnd(d int64) int64 { return s.ends[d] }
func (s *spoken) Read(dst []int32, off int64) error {
	if off < 0 || off+int64(len(dst)) > int64(len(s.stream)) {
		return fmt.Errorf("captions: %d tokens from %d of %d", len(dst), off, len(s.stream))
	}
	copy(dst, s.stream[off:])
	return nil
}
