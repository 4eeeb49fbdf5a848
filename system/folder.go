package system

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/regular"
	"github.com/snug-ml/snug/nn/hf"
)

// FolderKey is the key of the model folder in Hugging Face layout that a system continues to train.
const FolderKey = "model.folder"

// ReadFolder reads the description of the model folder dir of FolderKey. If that fails, it reports the
// problem and returns nil. A configuration file that has the sizes as well as the folder, such as a
// checkpoint's, works without the folder.
func ReadFolder(c *config.Config, r *config.Report, dir string) *hf.Config {
	f, err := hf.ReadConfig(dir)
	if err == nil {
		return f
	}
	folder, _ := c.Origin(FolderKey)
	if size, _ := c.Origin("model.d_model"); folder.Kind == config.File && size.Kind == config.File {
		r.Warn(FolderKey, "%v: planning with the sizes given here; training cannot start without the folder", err)
	} else {
		r.Error(FolderKey, "%v", err)
	}
	return nil
}

// FollowEncoder copies the sizes of the encoder in the model folder dir to the configuration, for Resolve of
// systems whose model is an encoder. An empty dir means no folder.
func FollowEncoder(c *config.Config, r *config.Report, dir string) {
	if dir == "" {
		return
	}
	f := ReadFolder(c, r, dir)
	if f == nil {
		return
	}
	m, ok := f.Model.(hf.BERT)
	if !ok {
		r.Error(FolderKey, "%s has a language model that predicts the next token; want an encoder: bert or roberta", dir)
		return
	}
	r.Follow(FolderKey, hf.ConfigFile, []config.Fact{
		{Key: "model.architecture", Value: f.Type()}, {Key: "model.d_model", Value: m.D}, {Key: "model.n_layers", Value: m.Layers},
		{Key: "model.n_heads", Value: m.Heads}, {Key: "model.d_ff", Value: m.FF}, {Key: "model.vocab_size", Value: m.Vocab},
		{Key: "model.max_seq_len", Value: m.Positions()}, {Key: "model.token_types", Value: m.Types}, {Key: "model.pad_id", Value: m.Pad},
		{Key: "model.activation", Value: m.Activation}, {Key: "model.layer_norm_eps", Value: m.Eps},
	})
}

// LoadFolder copies the weights of a model folder into a loaded program and reports what it found. It is an
// error if the folder lacks a frozen weight, because that weight would stay random.
func LoadFolder(r *engine.Executable, dir string, o hf.LoadOptions, log func(string, ...any)) error {
	f, err := hf.ReadConfig(dir)
	if err != nil {
		return err
	}
	report, err := f.Load(dir, r.Program().States, r.ChangeState, o)
	if err != nil {
		return err
	}
	for _, s := range r.Program().States {
		if s.Role == graph.Frozen && slices.Contains(report.New, s.Name) {
			return fmt.Errorf("%s: %s lacks %s, which would stay random: name its layer in lora.modules_to_save", FolderKey, dir, s.Name)
		}
	}
	report.New = slices.DeleteFunc(report.New, IsNew)
	for _, line := range report.Lines() {
		log("%s: %s", FolderKey, line)
	}
	return nil
}

// FolderPrint identifies the weights of a model folder by the names, sizes, first and last bytes of its
// files.
func FolderPrint(dir string) (string, error) {
	if _, err := os.Stat(dir); err != nil {
		return "", fmt.Errorf("%s: %w (a relative path starts at the working directory): name where it is now with --%s", FolderKey, err, FolderKey)
	}
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		return "", err
	}
	h := sha256.New()
	for _, name := range names {
		if ext := filepath.Ext(name); ext != ".safetensors" && ext != ".bin" {
			continue
		}
		if err := printFile(h, name); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:16]), nil
}

func printFile(h hash.Hash, name string) (err error) {
	f, err := regular.Open(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(h, "%s %d ", filepath.Base(name), st.Size()) // a hash never fails to write
	const part = 1 << 20
	for _, from := range []int64{0, max(0, st.Size()-part)} {
		if _, err := io.Copy(h, io.NewSectionReader(f, from, part)); err != nil {
			return err
		}
	}
	return nil
}

// FolderBytes returns the size of the weights of a model folder, which are mapped while they are loaded; 0 if
// there is no folder.
func FolderBytes(dir string) (n int64) {
	if dir == "" {
		return 0
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.safetensors"))
	if err != nil {
		return 0 // the name of the folder is not a valid pattern
	}
	for _, f := range files {
		if st, err := os.Stat(f); err == nil {
			n += st.Size()
		}
	}
	return n
}
