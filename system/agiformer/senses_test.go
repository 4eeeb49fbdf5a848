package agiformer

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/snug-ml/snug/data/safetensors"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/nn"
	"github.com/snug-ml/snug/system"
	"github.com/snug-ml/snug/train"
)

// TestFolderWithNaN: a folder with a value that is not finite is rejected by file and tensor, and no weight
// is changed, not even those that come before.
func TestFolderWithNaN(t *testing.T) {
	v, err := readViT("testdata/clip")
	if err != nil {
		t.Fatal(err)
	}
	r := armed(t, func(b *graph.Builder) {
		x := b.Input("pixels", graph.T(graph.F32, 2, v.Size, v.Size, 3))
		b.Scope("senses.encoder", func() { b.Output("hidden", v.Hidden(b, x)) })
	})
	dir := t.TempDir()
	path := filepath.Join(dir, "model.safetensors")
	raw, err := os.ReadFile("testdata/clip/model.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	states := r.Program().States
	name := strings.TrimPrefix(states[len(states)-1].Name, "senses.encoder.")
	f, err := safetensors.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	x, err := f.Tensor(name)
	if err != nil {
		name = strings.TrimPrefix(name, "vision_model.")
		x, err = f.Tensor(name)
	}
	if err != nil {
		t.Fatal(err)
	}
	at := f.DataStart() + x.Offset
	copy(raw[at:at+4], []byte{0, 0, 0xc0, 0x7f})
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	before := values(t, r)
	err = loadFolder(r, dir, "senses.encoder", "vision_model")
	if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "has 1 values that are NaN or infinite") {
		t.Errorf("loaded with a NaN in %s: %v", name, err)
	}
	for name, old := range before {
		if !slices.Equal(values(t, r)[name], old) {
			t.Errorf("%s has changed", name)
		}
	}
}

// values returns all states of a loaded program.
func values(t *testing.T, r *engine.Executable) map[string][]float32 {
	t.Helper()
	out := map[string][]float32{}
	for _, s := range r.Program().States {
		err := r.ScanState(s.Name, func(part engine.Tensor) bool {
			out[s.Name] = append(out[s.Name], part.F32()...)
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// TestEncoderEqualsTransformers: the image encoder, loaded from a CLIP folder, produces the same tokens as
// transformers.
func TestEncoderEqualsTransformers(t *testing.T) {
	v, err := readViT("testdata/clip")
	if err != nil {
		t.Fatal(err)
	}
	if v.Tokens() != 5 || !v.Quick {
		t.Errorf("the folder's encoder is %+v", v)
	}
	r := armed(t, func(b *graph.Builder) {
		x := b.Input("pixels", graph.T(graph.F32, 2, v.Size, v.Size, 3))
		b.Scope("senses.encoder", func() { b.Output("hidden", v.Hidden(b, x)) })
	})
	if err := loadFolder(r, "testdata/clip", "senses.encoder", "vision_model"); err != nil {
		t.Fatal(err)
	}
	g, err := safetensors.Open("testdata/clip/golden.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}()
	in, _ := r.Input(0, "pixels")
	copy(in.F32(), tensor(t, g, "pixels"))
	if err := r.Run("f", 0); err != nil {
		t.Fatal(err)
	}
	out, _ := r.Output("f", "hidden")
	if d := far(out.F32(), tensor(t, g, "hidden")); d > 2e-5 {
		t.Errorf("tokens differ by %g", d)
	}
}

// sensing returns a net that sees the modalities.
func sensing(modalities ...string) Net {
	n := tiny(1, 0, "standard", "logic")
	n.Vocab = byteVocabulary
	n.Senses = &Senses{
		Modalities: modalities, Samples: 64, Frames: 3,
		Image: nn.ViT{D: 12, Layers: 1, Heads: 2, FF: 20, Size: 8, Patch: 4, Eps: 1e-5},
	}
	return n
}

// TestSensesAreBuiltWhereNeeded: a program for text alone has no weight of any sense, one for images has none
// of sound, and each has those of text.
func TestSensesAreBuiltWhereNeeded(t *testing.T) {
	states := func(n Net) (names []string) {
		p := training(t, n, system.Shape{MicroBatch: 2, Accumulation: 1}, 12, engine.CompileOptions{})
		if len(p.Untrained) > 0 {
			t.Errorf("no gradient reaches %v", p.Untrained)
		}
		for _, s := range p.States {
			if s.Role == graph.Weight {
				names = append(names, s.Name)
			}
		}
		return names
	}
	below := func(names []string, prefix string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, prefix) })
	}
	plain := sensing()
	plain.Senses = nil
	text := states(plain)
	if below(text, "senses.") {
		t.Errorf("a model of text has %v", text)
	}
	for _, m := range []string{modImage, modAudio, modVideo} {
		names := states(sensing(m))
		for _, other := range []string{modImage, modAudio, modVideo} {
			if got := below(names, "senses."+other+"."); got != (other == m) {
				t.Errorf("a model with %s has weights of %s: %v", m, other, got)
			}
		}
		if got := below(names, "senses.encoder."); got != (m != modAudio) {
			t.Errorf("a model with %s has a picture encoder: %v", m, got)
		}
		for _, name := range text {
			if !slices.Contains(names, name) {
				t.Errorf("a model with %s lacks %s", m, name)
			}
		}
	}
}

// TestSensesReachTheirText: media change the output of their own sample only, and what comes later in the
// text still changes nothing before it.
func TestSensesReachTheirText(t *testing.T) {
	n := sensing(modImage, modAudio, modVideo)
	const batch, time = 2, 14
	r := armed(t, func(b *graph.Builder) {
		out := n.Forward(b, Input{IDs: b.Input("ids", graph.T(graph.I32, batch, time)), Seen: n.Senses.inputs(b, batch)})
		b.Output("logits", n.Logits(b, out.Hidden))
	})
	ids, _ := r.Input(0, "ids")
	copy(ids.I32(), text(batch*time, 256))
	rng := rand.New(rand.NewPCG(1, 2))
	for _, m := range n.Senses.Modalities {
		x, _ := r.Input(0, m)
		for i := range x.F32() {
			x.F32()[i] = float32(rng.NormFloat64())
		}
	}
	say := func() []float32 {
		if err := r.Run("f", 0); err != nil {
			t.Fatal(err)
		}
		out, _ := r.Output("f", "logits")
		return slices.Clone(out.F32())
	}
	before := say()
	half := len(before) / 2
	for _, m := range n.Senses.Modalities {
		x, _ := r.Input(0, m)
		last := len(x.F32()) - 1 // of the second sample
		x.F32()[last] += 3
		after := say()
		x.F32()[last] -= 3
		if !slices.Equal(before[:half], after[:half]) {
			t.Errorf("%s of one sample reaches another", m)
		}
		for at := range time {
			from := half + at*n.Vocab
			if slices.Equal(before[from:from+n.Vocab], after[from:from+n.Vocab]) {
				t.Errorf("%s does not reach byte %d", m, at)
			}
		}
	}
	ids.I32()[9]++
	if after := say(); !slices.Equal(before[:9*n.Vocab], after[:9*n.Vocab]) {
		t.Error("a later byte reaches back")
	}
}

// gallery writes a folder of captions that name a color, which only their images, sounds and videos
// determine.
func gallery(t *testing.T, n int) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "images"), 0o777); err != nil {
		t.Fatal(err)
	}
	colours := []struct {
		name string
		c    color.RGBA
	}{{"red", color.RGBA{220, 30, 30, 255}}, {"green", color.RGBA{30, 200, 30, 255}}, {"blue", color.RGBA{30, 30, 230, 255}}}
	for _, split := range []string{"train", "val"} {
		var list []map[string]any
		for i := range n {
			colour := colours[i%len(colours)]
			name := fmt.Sprintf("%s%d.png", split, i)
			writePNG(t, filepath.Join(dir, "images", name), 20+i%3, 16, colour.c)
			sound := fmt.Sprintf("%s%d.wav", split, i)
			writeWAV(t, filepath.Join(dir, "images", sound), 60, float64(1+i%3))
			list = append(list, map[string]any{
				"image_file": name, "audio_file": sound, "frame_files": []string{name, name, name}, "caption": "it is " + colour.name,
			})
		}
		raw, err := json.Marshal(list)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "metadata_"+split+".json"), raw, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func writePNG(t *testing.T, path string, w, h int, c color.Color) {
	t.Helper()
	img := image.NewRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			img.Set(x, y, c)
		}
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := png.Encode(f, img); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// writeWAV writes a stereo tone whose right channel is silent.
func writeWAV(t *testing.T, path string, samples int, turns float64) {
	t.Helper()
	raw := []byte("RIFF\x00\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x02\x00")
	raw = binary.LittleEndian.AppendUint32(raw, 8000)
	raw = binary.LittleEndian.AppendUint32(raw, 32000)
	raw = append(raw, 4, 0, 16, 0)
	raw = append(raw, "LIST\x03\x00\x00\x00abc\x00data"...)
	raw = binary.LittleEndian.AppendUint32(raw, uint32(4*samples))
	for i := range samples {
		v := int16(32767 * math.Sin(2*math.Pi*turns*float64(i)/float64(samples)))
		raw = binary.LittleEndian.AppendUint16(raw, uint16(v))
		raw = binary.LittleEndian.AppendUint16(raw, 0)
	}
	binary.LittleEndian.PutUint32(raw[4:], uint32(len(raw)-8))
	if err := os.WriteFile(path, raw, 0o666); err != nil {
		t.Fatal(err)
	}
}

// TestSensesLearn: from captions determined by the media alone, each sense learns what text alone cannot
// reveal.
func TestSensesLearn(t *testing.T) {
	dir := gallery(t, 25)
	tok, err := bytesTokenizer()
	if err != nil {
		t.Fatal(err)
	}
	learn := func(modalities ...string) float64 {
		n := sensing(modalities...)
		n.Introspection = nil
		const length, rows, updates = 12, 8, 150
		data, err := openCaptions(dir, "train", n, length, 64<<20, tok)
		if err != nil {
			t.Fatal(err)
		}
		held, err := openCaptions(dir, "val", n, length, 64<<20, tok)
		if err != nil {
			t.Fatal(err)
		}
		p := training(t, n, system.Shape{MicroBatch: rows, Accumulation: 1}, length, engine.CompileOptions{})
		r := start(t, p)
		f := &captionLoader{captions: data, rows: rows, micro: 1, shuffle: true, seed: 1}
		for range updates {
			u, err := f.Next()
			if err != nil {
				t.Fatal(err)
			}
			if err := u.Fill(0, train.Inputs{Runner: r}); err != nil {
				t.Fatal(err)
			}
			lr, _ := r.Input(0, engine.InputLR)
			inv, _ := r.Input(0, engine.InputInvWeight)
			lr.F32()[0], inv.F32()[0] = 4e-3, float32(1/u.Weight)
			if err := r.Run(engine.FuncStep, 0); err != nil {
				t.Fatal(err)
			}
		}
		found, err := n.measure(context.Background(), r, held, rows, 0) // the last batch is not full
		if err != nil {
			t.Fatal(err)
		}
		return found.Loss / 25 // nats per caption
	}
	blind := learn()
	if blind < 0.9*math.Log(3) {
		t.Fatalf("without senses the captions cost %.3f nats each: they tell themselves", blind)
	}
	for _, m := range []string{modImage, modAudio, modVideo} {
		if seeing := learn(m); seeing > blind/3 {
			t.Errorf("with %s a caption costs %.3f nats, without %.3f", m, seeing, blind)
		} else {
			t.Logf("with %s a caption costs %.3f nats, without %.3f", m, seeing, blind)
		}
	}
}

// TestCaptionFeedResumes: a data loader that seeks continues like the one whose position it was.
func TestCaptionFeedResumes(t *testing.T) {
	n := sensing(modImage)
	tok, err := bytesTokenizer()
	if err != nil {
		t.Fatal(err)
	}
	c, err := openCaptions(gallery(t, 7), "train", n, 12, 64<<20, tok)
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, training(t, n, system.Shape{MicroBatch: 2, Accumulation: 1}, 12, engine.CompileOptions{}))
	next := func(f *captionLoader) (ids []int32, cursor json.RawMessage) {
		u, err := f.Next()
		if err != nil {
			t.Fatal(err)
		}
		for m := range u.Micro {
			if err := u.Fill(m, train.Inputs{Runner: r}); err != nil {
				t.Fatal(err)
			}
			x, _ := r.Input(0, "labels")
			ids = append(ids, x.I32()...)
		}
		cursor, err = json.Marshal(f.Position())
		if err != nil {
			t.Fatal(err)
		}
		return ids, cursor
	}
	whole := &captionLoader{captions: c, rows: 2, micro: 2, shuffle: true, seed: 5}
	for range 3 {
		_, cursor := next(whole)
		part := &captionLoader{captions: c, rows: 2, micro: 2, shuffle: true, seed: 5}
		if err := part.Seek(cursor); err != nil {
			t.Fatal(err)
		}
		at := whole.place
		want, _ := next(whole)
		whole.place = at
		if got, _ := next(part); !slices.Equal(got, want) {
			t.Errorf("from %s on: %v, want %v", cursor, got, want)
		}
	}
	if err := whole.Seek(json.RawMessage(`{"folder":"other","place":4}`)); err == nil {
		t.Error("the position of another folder is taken")
	}
}

func TestCaptionRefusals(t *testing.T) {
	tok, err := bytesTokenizer()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ metadata, want string }{
		{`[]`, "lists nothing"},
		{`[{"caption": "x"}]`, `has no "image_file"`},
		{`[{"caption": "", "image_file": "a.png"}]`, "caption is empty"},
		{`[{"caption": "x", "image_file": "gone.png"}]`, "gone.png"},
		{`[{"caption": "x", "image_file": "../a.png"}]`, "leads out of the folder"},
		{`[{"caption": "x", "image_file": "/etc/passwd"}]`, "leads out of the folder"},
		{`[{"caption": "x", "image_file": "out.png"}]`, "leads out of the folder"},
		{`{`, "unexpected end"},
		{"\ufeff[]", "metadata_train.json lists nothing"},
	} {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "images"), 0o777); err != nil {
			t.Fatal(err)
		}
		writePNG(t, filepath.Join(dir, "images", "a.png"), 4, 4, color.White)
		writePNG(t, filepath.Join(dir, "out.png"), 4, 4, color.White)
		if err := os.Symlink("../out.png", filepath.Join(dir, "images", "out.png")); err != nil {
			t.Skip(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "metadata_train.json"), []byte(c.metadata), 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := openCaptions(dir, "train", sensing(modImage), 12, 64<<20, tok); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", c.metadata, err, c.want)
		}
	}
	if _, err := openCaptions(t.TempDir(), "train", sensing(modImage), 12, 64<<20, tok); err == nil {
		t.Error("an empty folder is taken")
	}
}

func TestMedia(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.png")
	writePNG(t, path, 30, 20, color.RGBA{255, 0, 128, 255})
	px := make([]float32, 8*8*3)
	if err := readPicture(px, path, 8, 64<<20); err != nil {
		t.Fatal(err)
	}
	for c, want := range []float32{1, 0, 128.0 / 255} {
		want = (want - pixelMean[c]) / pixelStd[c]
		if math.Abs(float64(px[3*27+c]-want)) > 1e-2 {
			t.Errorf("channel %d is %v, want %v", c, px[3*27+c], want)
		}
	}
	wav := filepath.Join(dir, "a.wav")
	writeWAV(t, wav, 40, 1)
	sound := make([]float32, 40)
	if err := readWAV(sound, wav); err != nil {
		t.Fatal(err)
	}
	if d := math.Abs(float64(sound[10]) - 0.5); d > 1e-3 {
		t.Errorf("a quarter into the tone the mean of both channels is %v, want 0.5", sound[10])
	}
	if err := readWAV(sound[:39], wav); err == nil || !strings.Contains(err.Error(), "40 samples") {
		t.Errorf("a sound that is too long: %v", err)
	}
	for _, broken := range []string{"", "RIFF", "RIFF0000WAVEdata\xff\xff\xff\xff"} {
		if err := os.WriteFile(wav, []byte(broken), 0o666); err != nil {
			t.Fatal(err)
		}
		if readWAV(sound, wav) == nil {
			t.Errorf("%q passes for a sound", broken)
		}
		if readPicture(px, wav, 8, 64<<20) == nil {
			t.Errorf("%q passes for a picture", broken)
		}
	}
}
