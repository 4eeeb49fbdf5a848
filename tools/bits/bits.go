// Package bits trains a preset for a few updates and hashes what was saved: whether two
// versions of snug compute the same.
package bits

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/snug-ml/snug/data/safetensors"
)

// Quickstarts are the presets that a newcomer meets, one of each system.
var Quickstarts = []struct{ System, Preset string }{
	{"refocused", "quickstart"},
	{"moderation", "moderation-quickstart"},
	{"agiformer", "agiformer-quickstart"},
	{"cloudbase", "cloudbase-quickstart"},
	{"dynamo", "dynamo-quickstart"},
}

// Run is a short training.
type Run struct {
	Binary, Preset string
	// Dir gets the run, and Dir-data its prepared data.
	Dir string
	// Updates of the run, or of each phase of one that trains in phases.
	Updates int
	Threads int
	// Set has further settings.
	Set map[string]string
}

// Train runs it; an error has the end of what the binary printed.
func (r *Run) Train(ctx context.Context) error {
	binary, err := filepath.Abs(r.Binary)
	if err != nil {
		return err
	}
	settings := r.settings()
	maps.Copy(settings, r.Set)
	args := append([]string{"train", r.Preset, "--out", r.Dir, "--data.cache_dir", r.Dir + "-data", "--hardware.threads", strconv.Itoa(r.Threads)}, Flags(settings)...)
	out, err := exec.CommandContext(ctx, binary, args...).CombinedOutput()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		return fmt.Errorf("%s %s: %w\n%s", binary, strings.Join(args, " "), err, strings.Join(lines[max(0, len(lines)-5):], "\n"))
	}
	return nil
}

// Flags are settings as a command's arguments.
func Flags(settings map[string]string) (args []string) {
	for _, k := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "--"+k+"="+settings[k])
	}
	return args
}

// settings make a run short.
func (r *Run) settings() map[string]string {
	n := strconv.Itoa(r.Updates)
	s := map[string]string{"training.eval_steps": "0", "training.eval_batches": "1", "training.save_steps": "0"}
	if !slices.Contains([]string{"dynamo-quickstart", "dynamo-guide", "dynamo-t4"}, r.Preset) {
		s["training.max_steps"] = n
		s["training.warmup_steps"] = strconv.Itoa(min(5, r.Updates-1))
		return s
	}
	// Phases continue whatever the earlier ones reached.
	for _, k := range []string{"phases.min_encoder_gain", "phases.min_gain"} {
		s[k] = "-1e9"
	}
	s["phases.min_routing"] = "0"
	for _, k := range []string{"phases.encoder_steps", "phases.router_steps", "phases.joint_steps"} {
		s[k] = n
	}
	for _, task := range []string{"sentiment", "qa", "summarization", "code_generation", "translation"} {
		s["tasks."+task+".steps"] = n
		s["tasks."+task+".held_out"] = "16"
	}
	return s
}

// Tensors are the hashes of the tensors of a file by name: of type, shape and data.
type Tensors map[string][sha256.Size]byte

// Rename replaces parts of the names.
func (t Tensors) Rename(names map[string]string) {
	for name, sum := range maps.Clone(t) {
		parts := strings.Split(name, ".")
		for i, p := range parts {
			if to, ok := names[p]; ok {
				parts[i] = to
			}
		}
		delete(t, name)
		t[strings.Join(parts, ".")] = sum
	}
}

// Hashes reads the checkpoints below dir, by the path of the file in dir.
func Hashes(dir string) (map[string]Tensors, error) {
	all := map[string]Tensors{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".safetensors" || !strings.Contains(path, string(filepath.Separator)+"checkpoints"+string(filepath.Separator)) {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		all[rel], err = hashFile(path)
		return err
	})
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("%s: the run saved no checkpoint", dir)
	}
	return all, err
}

func hashFile(path string) (t Tensors, err error) {
	f, err := safetensors.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	t = Tensors{}
	for _, info := range f.Tensors() {
		x, err := f.Tensor(info.Name)
		if err != nil {
			return nil, err
		}
		t[x.Name] = sha256.Sum256(fmt.Appendf(nil, "%v %v %x", x.DType, x.Shape, sha256.Sum256(x.Data)))
	}
	return t, nil
}

// Sum is one hash of all that was saved and of what was reported besides.
func Sum(saved map[string]Tensors, reported string) string {
	h := sha256.New()
	for _, file := range slices.Sorted(maps.Keys(saved)) {
		for _, name := range slices.Sorted(maps.Keys(saved[file])) {
			fmt.Fprintf(h, "%s %s %x\n", file, name, saved[file][name])
		}
	}
	fmt.Fprintln(h, reported)
	return fmt.Sprintf("%x", h.Sum(nil)[:6])
}
