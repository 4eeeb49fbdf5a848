package cli

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// captionedColors are the colors that the captions of a gallery name.
var captionedColors = []struct {
	name string
	c    color.RGBA
}{{"red", color.RGBA{220, 30, 30, 255}}, {"green", color.RGBA{30, 200, 30, 255}}, {"blue", color.RGBA{30, 30, 230, 255}}}

// makeGallery is a command for scripts. It writes a folder of captions whose color only the images, sounds
// and videos show, and a WAV file that is too long.
func makeGallery() {
	if err := gallery(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func gallery(dir string) error {
	images := filepath.Join(dir, "images")
	if err := os.MkdirAll(images, 0o777); err != nil {
		return err
	}
	files := map[string][]byte{"long.wav": wav(100, 1)}
	for _, split := range []string{"train", "val"} {
		var list []map[string]any
		for i := range 24 {
			x := captionedColors[i%3]
			picture, sound := fmt.Sprintf("%s%d.png", split, i), fmt.Sprintf("%s%d.wav", split, i)
			img := image.NewRGBA(image.Rect(0, 0, 20+i%3, 16))
			for p := range img.Rect.Dx() * 16 {
				img.Set(p%img.Rect.Dx(), p/img.Rect.Dx(), x.c)
			}
			var b bytes.Buffer
			if err := png.Encode(&b, img); err != nil {
				return err
			}
			files[picture], files[sound] = b.Bytes(), wav(60, 1+i%3)
			list = append(list, map[string]any{"caption": "it is " + x.name, "image_file": picture, "audio_file": sound, "frame_files": []string{picture, picture}})
		}
		raw, err := json.Marshal(list)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "metadata_"+split+".json"), raw, 0o666); err != nil {
			return err
		}
	}
	for name, raw := range files {
		if err := os.WriteFile(filepath.Join(images, name), raw, 0o666); err != nil {
			return err
		}
	}
	return nil
}

// wav returns a square wave with the given number of periods.
func wav(samples, turns int) []byte {
	raw := binary.LittleEndian.AppendUint32([]byte("RIFF"), uint32(36+2*samples))
	raw = append(raw, "WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00"...)
	raw = binary.LittleEndian.AppendUint32(raw, 8000)
	raw = binary.LittleEndian.AppendUint32(raw, 16000)
	raw = append(raw, "\x02\x00\x10\x00data"...)
	raw = binary.LittleEndian.AppendUint32(raw, uint32(2*samples))
	for i := range samples {
		raw = binary.LittleEndian.AppendUint16(raw, uint16(int16(16000-32000*(2*turns*i/samples%2))))
	}
	return raw
}

// galleryRun trains on a gallery, and returns the run and the folder of the gallery's images.
func galleryRun(t *testing.T) (run, images string) {
	t.Helper()
	dir := t.TempDir()
	if err := gallery(dir); err != nil {
		t.Fatal(err)
	}
	run = filepath.Join(t.TempDir(), "seeing")
	config := filepath.Join(dir, "seeing.yaml")
	if err := os.WriteFile(config, []byte(`system: agiformer
model:
  {d_model: 32, n_layers: 1, n_heads: 2, d_ff: 64, max_seq_len: 24, n_experts: 1, use_memory: false, use_introspection: false,
  use_multimodal: true, modalities: [image], image: {size: 8, patch: 4, d_model: 16, n_layers: 1, n_heads: 2, d_ff: 24}}
training: {batch_size: 8, max_steps: 200, learning_rate: 4e-3, warmup_steps: 5, eval_steps: 0, save_steps: 0, sample: {tokens: 0}}
data: {seq_len: 24}
`), 0o666); err != nil {
		t.Fatal(err)
	}
	done(t, "train", "--config", config, "--out", run, "--data.source", dir)
	return run, filepath.Join(dir, "images")
}

// TestServeMedia: a server reads images as generate does, and names the field that it cannot read.
func TestServeMedia(t *testing.T) {
	run, images := galleryRun(t)
	v := launch(t, filepath.Dir(run), "snug", "serve", run, "--listen", "127.0.0.1:0")
	defer func() { _ = v.cmd.Process.Kill() }()
	if !v.until("listening on ") {
		t.Fatal(v.output())
	}
	_, url, _ := strings.Cut(v.output(), "listening on ")
	url = strings.TrimSpace(url) + "/v1/completions"
	post := func(media any, more string) (int, string) {
		raw, err := json.Marshal(media)
		if err != nil {
			t.Fatal(err)
		}
		ask := fmt.Sprintf(`{"model": "seeing", "max_tokens": 12, "temperature": 0, "media": %s%s}`, raw, more)
		res, err := http.Post(url, "application/json", strings.NewReader(ask))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(body)
	}
	dataURL := func(raw []byte) string { return "data:image/png;base64," + base64.StdEncoding.EncodeToString(raw) }
	var pictures []string
	for i, x := range captionedColors {
		path := filepath.Join(images, fmt.Sprintf("val%d.png", i))
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		pictures = append(pictures, dataURL(raw))
		for _, c := range [][2]string{{"", ""}, {"it is ", `, "prompt": "it is ", "echo": true`}, {"it", `, "prompt": "it", "echo": true, "stream": true, "logprobs": 1`}} {
			prompt, more := c[0], c[1]
			greedy := done(t, "generate", run, "--image", path, "--prompt", prompt, "--temperature", "0").out
			if greedy != "it is "+x.name+"\n" {
				t.Errorf("%s: generate %q writes %q", x.name, prompt, greedy)
			}
			code, body := post(map[string]any{"image": pictures[i]}, more)
			var got string
			for _, line := range strings.Split(body, "\n") {
				var c struct{ Choices []struct{ Text string } }
				if raw := strings.TrimPrefix(line, "data: "); json.Unmarshal([]byte(raw), &c) == nil && len(c.Choices) > 0 {
					got += c.Choices[0].Text
				}
			}
			if code != http.StatusOK || got+"\n" != greedy {
				t.Errorf("%s, %q: %d %s, generate writes %q", x.name, prompt, code, body, greedy)
			}
		}
	}
	var huge bytes.Buffer // 100 million pixels in a few kilobytes
	if err := png.Encode(&huge, image.NewPaletted(image.Rect(0, 0, 10000, 10000), color.Palette{color.Black})); err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct {
		media any
		want  string
	}{
		"no object":         {"x", "media: want an object of data URLs by kind"},
		"no URL":            {map[string]any{"image": 3}, "media.image: want a data URL"},
		"an address":        {map[string]any{"image": "http://localhost/a.png"}, "URLs are not fetched"},
		"broken base64":     {map[string]any{"image": pictures[0][:len(pictures[0])-1]}, "its base64 is invalid"},
		"no picture":        {map[string]any{"image": dataURL([]byte("hello"))}, "want a PNG or a JPEG"},
		"too many":          {map[string]any{"image": pictures}, "media.image: 3 files, the model reads 1"},
		"another kind":      {map[string]any{"audio": pictures[0]}, "media.audio: the model was trained without it (model.modalities): omit it; it reads image"},
		"too many pixels":   {map[string]any{"image": dataURL(huge.Bytes())}, "an image of 10000 x 10000 pixels takes 100000000 bytes, more than the 67108864 allowed"},
		"too long a prompt": {map[string]any{"image": pictures[0]}, "context_length_exceeded"},
	} {
		more := ""
		if name == "too long a prompt" {
			more = `, "prompt": "123456789012"` // 13 with the token that starts a document, plus 12 to write
		}
		code, body := post(x.media, more)
		var e struct {
			Error struct{ Message, Type, Code string }
		}
		if err := json.Unmarshal([]byte(body), &e); err != nil || code != http.StatusBadRequest || e.Error.Type != "invalid_request_error" ||
			!strings.Contains(e.Error.Message+e.Error.Code, x.want) {
			t.Errorf("%s: %d %s, want %q", name, code, body, x.want)
		}
	}
	if code, body := post(nil, `, "prompt": "123456789012"`); code != http.StatusOK {
		t.Errorf("text alone: %d %s", code, body)
	}
	if err := v.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := v.wait(); code != exitDone {
		t.Errorf("exit code %d\n%s", code, v.output())
	}
}
