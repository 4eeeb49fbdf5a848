package device

import (
	"slices"
	"testing"
)

func TestDiscoverNVIDIA(t *testing.T) {
	root := fakeRoot(t, map[string]string{
		"proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\nGCC version:  gcc 12\n",
		"proc/driver/nvidia/gpus/0000:00:04.0/information": "Model: \t\t Tesla T4\nIRQ:   \t\t 33\nGPU UUID: \t GPU-0001\n" +
			"Video BIOS: \t 90.04.a7.00.01\nBus Type: \t PCIe\nBus Location: \t 0000:00:04.0\nDevice Minor: \t 0\nGPU Excluded:\t No\n",
		"proc/driver/nvidia/gpus/0000:62:00.0/information": "Model: \t\t NVIDIA Something New\nDevice Minor: \t 5\n",
		"dev/nvidia0": "", "dev/nvidiactl": "", "dev/nvidia-uvm": "", "dev/nvidia-caps/cap1": "",
		"colab/libcuda.so.1": "", "usr/lib64-nvidia/libcuda.so.1": "", "usr/lib64-nvidia/libnvidia-ml.so.1": "",
		"usr/local/lib/python3.12/dist-packages/nvidia/cublas/lib/libcublasLt.so.12": "",
		"usr/local/lib/python3.12/dist-packages/nvidia/cublas/lib/libcublasLt.so.13": "",
	})
	n := discoverNVIDIA(root, func(key string) string {
		return map[string]string{"LD_LIBRARY_PATH": ":/colab:/nowhere"}[key]
	})
	if n.Driver != "535.104.05" {
		t.Errorf("driver %q", n.Driver)
	}
	if want := []string{"/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidiactl"}; !slices.Equal(n.Nodes, want) {
		t.Errorf("nodes %v, want %v", n.Nodes, want)
	}
	if len(n.Cards) != 2 {
		t.Fatalf("%d cards: %+v", len(n.Cards), n.Cards)
	}
	t4, other := n.Cards[0], n.Cards[1]
	if t4.Model != "Tesla T4" || t4.UUID != "GPU-0001" || t4.Bus != "0000:00:04.0" || t4.Minor != 0 || !t4.Node || t4.Card == nil || t4.Card.Name != "T4" {
		t.Errorf("first card: %+v", t4)
	}
	// Its device file is missing: it belongs to another container.
	if other.Model != "NVIDIA Something New" || other.Bus != "0000:62:00.0" || other.Minor != 5 || other.Node || other.Card != nil {
		t.Errorf("second card: %+v", other)
	}
	want := []string{
		"/colab/libcuda.so.1", "/usr/lib64-nvidia/libnvidia-ml.so.1",
		"/usr/local/lib/python3.12/dist-packages/nvidia/cublas/lib/libcublasLt.so.13", "",
	}
	for i, l := range n.Libraries {
		if l.Path != want[i] {
			t.Errorf("%s at %q, want %q", l.Name, l.Path, want[i])
		}
	}
	if seen := n.Libraries[0].Seen; len(seen) != 2 {
		t.Errorf("libcuda seen at %v, want both", seen)
	}
}

func TestDiscoverNothing(t *testing.T) {
	n := discoverNVIDIA(t.TempDir(), func(string) string { return "" })
	if n.Driver != "" || len(n.Cards) != 0 || len(n.Nodes) != 0 || len(n.Libraries) != len(wanted) {
		t.Errorf("found %+v in an empty folder", n)
	}
	for _, l := range n.Libraries {
		if l.Path != "" {
			t.Errorf("%s at %s", l.Name, l.Path)
		}
	}
}
