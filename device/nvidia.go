package device

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// NVIDIA is what was found of NVIDIA's driver, cards and libraries on this machine. Nothing was
// loaded or opened.
type NVIDIA struct {
	Driver    string      `json:"driver"`    // version of the kernel module; "" if none is loaded
	Cards     []FoundCard `json:"cards"`     // by bus address
	Nodes     []string    `json:"nodes"`     // device files: /dev/nvidia0, /dev/nvidiactl, /dev/nvidia-uvm, /dev/dxg (WSL)
	Libraries []Library   `json:"libraries"` // those that a CUDA program uses, found or not
}

// FoundCard is one card in this machine.
type FoundCard struct {
	Model string `json:"model"` // as the driver names it
	UUID  string `json:"uuid"`
	Bus   string `json:"bus"`   // PCI address
	Minor int    `json:"minor"` // N of /dev/nvidiaN; -1 if unknown
	Node  bool   `json:"node"`  // /dev/nvidiaN exists: this process (its container) was given the card
	Card  *Card  `json:"card"`  // its row in the table; nil if the table lacks it
}

// Library is a shared library and where it is.
type Library struct {
	Name string   `json:"name"` // file name without version, for instance "libcuda.so"
	For  string   `json:"for"`  // what it is needed for
	Path string   `json:"path"` // the first match; "" if absent
	Seen []string `json:"seen"` // all matches, in search order
}

// NVIDIADriver returns the version of the driver's kernel module; empty if none is
// loaded, or if it does not say.
func NVIDIADriver() string { return driverVersion("/") }

// DiscoverNVIDIA looks for cards and libraries.
func DiscoverNVIDIA() NVIDIA { return discoverNVIDIA("/", os.Getenv) }

func discoverNVIDIA(root string, env func(string) string) NVIDIA {
	n := NVIDIA{Driver: driverVersion(root)}
	for _, pattern := range []string{"dev/nvidia*", "dev/dxg"} {
		nodes, _ := filepath.Glob(filepath.Join(root, pattern)) // fails only on a bad pattern
		for _, node := range nodes {
			if info, err := os.Stat(node); err == nil && !info.IsDir() {
				n.Nodes = append(n.Nodes, relative(root, node))
			}
		}
	}
	infos, _ := filepath.Glob(filepath.Join(root, "proc/driver/nvidia/gpus/*/information"))
	for _, path := range infos {
		if text, err := os.ReadFile(path); err == nil {
			f := parseInformation(string(text))
			f.Bus = cmp.Or(f.Bus, filepath.Base(filepath.Dir(path)))
			f.Node = f.Minor >= 0 && slices.Contains(n.Nodes, "/dev/nvidia"+strconv.Itoa(f.Minor))
			n.Cards = append(n.Cards, f)
		}
	}
	n.Libraries = findLibraries(root, env)
	return n
}

// driverVersion reads "NVRM version: NVIDIA UNIX x86_64 Kernel Module 535.104.05 ...":
// the first word that consists of numbers and dots.
func driverVersion(root string) string {
	text, err := os.ReadFile(filepath.Join(root, "proc/driver/nvidia/version"))
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(text), "\n")
	for word := range strings.FieldsSeq(line) {
		if strings.Contains(word, ".") && strings.Trim(word, "0123456789.") == "" {
			return word
		}
	}
	return ""
}

// parseInformation reads the driver's "Key:  value" lines about one card.
func parseInformation(text string) FoundCard {
	f := FoundCard{Minor: -1}
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(key) {
		case "Model":
			f.Model, f.Card = value, match(value)
		case "GPU UUID":
			f.UUID = value
		case "Bus Location":
			f.Bus = value
		case "Device Minor":
			if minor, err := strconv.Atoi(value); err == nil {
				f.Minor = minor
			}
		}
	}
	return f
}

// wanted are the libraries that a CUDA program uses.
var wanted = []struct{ name, purpose string }{
	{"libcuda.so", "the driver, needed for everything"},
	{"libnvidia-ml.so", "utilization, power and clocks"},
	{"libcublasLt.so", "matmuls, where it is faster than snug's kernels"},
	{"libnccl.so", "several GPUs"},
}

// findLibraries searches where installations put them: LD_LIBRARY_PATH first (Colab's
// driver is only there), then the driver's folders by distribution, the toolkit, Conda,
// and the wheels of pip.
func findLibraries(root string, env func(string) string) []Library {
	var patterns []string
	for dir := range strings.SplitSeq(env("LD_LIBRARY_PATH"), ":") {
		if dir != "" {
			patterns = append(patterns, dir)
		}
	}
	patterns = append(patterns,
		"/usr/lib64-nvidia",         // Colab
		"/usr/local/nvidia/lib64",   // Kubernetes, Kaggle
		"/usr/lib/x86_64-linux-gnu", // Debian, Ubuntu
		"/usr/lib/aarch64-linux-gnu",
		"/usr/lib64",       // Red Hat, Amazon Linux
		"/usr/lib/wsl/lib", // Windows Subsystem for Linux
		"/usr/local/cuda/lib64", "/usr/local/cuda-1[23]*/lib64",
	)
	if dir := env("CUDA_HOME"); dir != "" {
		patterns = append(patterns, filepath.Join(dir, "lib64"))
	}
	if dir := env("CONDA_PREFIX"); dir != "" {
		patterns = append(patterns, filepath.Join(dir, "lib"))
	}
	for _, packages := range []string{
		env("VIRTUAL_ENV") + "/lib/python3*/site-packages", "/usr/local/lib/python3*/dist-packages", "/usr/local/lib/python3*/site-packages",
		"/opt/conda/lib/python3*/site-packages", "/usr/lib/python3/dist-packages",
	} {
		if !strings.HasPrefix(packages, "/lib/") { // no virtual environment
			patterns = append(patterns, packages+"/nvidia/cu13/lib", packages+"/nvidia/cublas/lib", packages+"/nvidia/nccl/lib", packages+"/torch/lib")
		}
	}

	libraries := make([]Library, len(wanted))
	for i, w := range wanted {
		l := Library{Name: w.name, For: w.purpose}
		for _, dir := range patterns {
			found, _ := filepath.Glob(filepath.Join(root, dir, w.name+"*"))
			slices.Sort(found)
			for _, path := range slices.Backward(found) { // the newest version first
				if path = relative(root, path); !slices.Contains(l.Seen, path) {
					l.Seen = append(l.Seen, path)
				}
			}
		}
		if len(l.Seen) > 0 {
			l.Path = l.Seen[0]
		}
		libraries[i] = l
	}
	return libraries
}

// relative returns the path as seen from root.
func relative(root, path string) string {
	rel, err := filepath.Rel(root, path)
	if err != nil {
		return path
	}
	return "/" + rel
}
