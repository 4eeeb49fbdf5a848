package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/snug-ml/snug/inference"
	"github.com/snug-ml/snug/internal/regular"
	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/train/checkpoint"
)

type generateCmd struct {
	pick
	Prompt      string   `help:"Text to continue (default: start a document)." empty:"" key:"training.sample.prompt"`
	Image       string   `help:"Picture that comes with the text (PNG or JPEG), for a model trained with pictures." placeholder:"FILE"`
	Audio       string   `help:"Sound that comes with the text (WAV, 16-bit PCM)." placeholder:"FILE"`
	Video       []string `help:"Frames that come with the text: one picture for each of model.video_frames, in order; repeat the flag." placeholder:"FILE" sep:"none"`
	Tokens      int      `help:"Maximum number of tokens to generate." default:"200" min:"1" of:"tokens" key:"training.sample.tokens"`
	Temperature *float64 `help:"Sampling temperature; 0: always the most likely token (default: the run's setting)." min:"0" key:"training.sample.temperature"`
	TopK        *int     `name:"top_k" help:"Sample from this many most likely tokens; 0: from all." min:"0" of:"vocabulary" key:"training.sample.top_k"`
	TopP        *float64 `name:"top_p" help:"Sample from the most likely tokens whose probabilities add up to this." above:"0" max:"1" key:"training.sample.top_p"`
	Seed        uint64   `help:"Seed of the sampling." default:"42"`
	Threads     int      `help:"Worker threads (default: the cores this process may use)." min:"1" of:"threads" key:"hardware.threads"`
}

// Help implements kong.HelpProvider.
func (generateCmd) Help() string {
	return `Examples:
  snug generate runs/quickstart --prompt "func main"
  snug generate runs/quickstart/checkpoints/step-00000400 --temperature 0
  snug generate runs/captions --image cat.png --audio cat.wav --prompt "a "

A multimodal agiformer run takes a file for each of its model.modalities, or none: then
only its text part is used.`
}

// Run implements the command.
func (g *generateCmd) Run(a *app) error {
	o, err := a.open(g.pick)
	if err != nil {
		return err
	}
	if o.system.Language == nil {
		return fmt.Errorf("%s is a run of the system %s, which does not generate text", g.Path, o.config.System)
	}
	on, err := o.device(a, g.Threads)
	if err != nil {
		return err
	}
	l, err := o.system.Language(o.config, o.Path)
	if err != nil {
		return err
	}
	seen, err := g.media(l)
	if err != nil {
		return err
	}
	ids, err := l.Encode(g.Prompt)
	if err != nil {
		return err
	}
	if n, most := l.Length(ids, seen), l.Positions(); n > most {
		a.warning("--prompt: %s are longer than the model's context of %d: it reads the last %d only", size.Of(n, "token"), most, most)
	}
	gen, err := inference.NewMediaGenerator(l, seen, on)
	if err != nil {
		return err
	}
	defer func() { _ = gen.Close() }() // frees only memory
	s := o.config.Training.Sample
	how := inference.Sampling{Temperature: s.Temperature, TopK: s.TopK, TopP: s.TopP, Seed: g.Seed}
	if g.Temperature != nil {
		how.Temperature = *g.Temperature
	}
	if g.TopK != nil {
		how.TopK = *g.TopK
	}
	if g.TopP != nil {
		how.TopP = *g.TopP
	}
	began := time.Now()
	var text strings.Builder
	var w io.Writer = a.out
	if a.asJSON {
		w = &text
	}
	n, err := gen.Generate(a.ctx, g.Prompt, g.Tokens, how, w)
	if err != nil {
		a.printf("\n")
		return err
	}
	took := time.Since(began).Seconds()
	if a.asJSON {
		return a.json(generated{o.Chosen, g.Prompt, text.String(), n, took})
	}
	a.printf("\n")
	_, err = fmt.Fprintf(a.err, "%s, %.0f tok/s, with %v\n", size.Of(n, "token"), float64(n)/took, o)
	return err
}

// media decodes the files that come with the text.
func (g *generateCmd) media(l *inference.Language) (inference.Seen, error) {
	files := map[string][]inference.MediaFile{}
	var opened []io.Closer
	defer func() {
		for _, f := range opened {
			_ = f.Close() // opened for reading only
		}
	}()
	for _, x := range []struct {
		kind  string
		paths []string
	}{{"image", []string{g.Image}}, {"audio", []string{g.Audio}}, {"video", g.Video}} {
		for _, path := range x.paths {
			if path == "" {
				continue
			}
			f, err := regular.Open(path)
			if err != nil {
				return nil, usage("--%s: %v", x.kind, err)
			}
			opened = append(opened, f)
			files[x.kind] = append(files[x.kind], inference.MediaFile{Name: path, ReadSeeker: f})
		}
	}
	seen, err := l.Decode(files)
	if err != nil {
		return nil, usage("--%v", err)
	}
	return seen, nil
}

// generated is a text as JSON, including the prompt.
type generated struct {
	*checkpoint.Chosen
	Prompt  string  `json:"prompt"`
	Text    string  `json:"text"`
	Tokens  int     `json:"tokens"`
	Seconds float64 `json:"seconds"`
}
