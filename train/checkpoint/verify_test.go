package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestDamageIsNamed plants one fault after the other into the newest of two
// checkpoints: each must be found, named, and skipped by Latest.
func TestDamageIsNamed(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	save(t, s, 1, 2)
	path := filepath.Join(s.Dir(), stepName(2))
	read := func(name string) []byte {
		data, err := os.ReadFile(filepath.Join(path, name))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	try := func(what, file, tensor, problem string) {
		t.Helper()
		report, err := Verify(path)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(report.Faults, func(f *Fault) bool {
			return filepath.Base(f.Path) == file && f.Tensor == tensor && strings.Contains(f.Problem, problem)
		}) {
			t.Errorf("%s: want a fault of %s, tensor %q, %q; found %v", what, file, tensor, problem, report.Err())
		}
		for _, f := range report.Faults {
			if filepath.Base(f.Path) != file {
				t.Errorf("%s: blames %s too: %v", what, f.Path, f)
			}
		}
		var damaged *DamagedError
		if _, err := Load(path); !errors.As(err, &damaged) || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: Load says %v", what, err)
		}
		u, rejected := latest(t, dir)
		if u != 1 || len(rejected) != 1 || rejected[0].Path != path || !strings.Contains(rejected[0].Err.Error(), file) {
			t.Errorf("%s: latest %d, rejected %v", what, u, rejected)
		}
	}
	files := []string{WeightsFile, OptimizerFile, StateFile, MetadataFile, ConfigFile, "tokenizer.json", ManifestFile}
	for _, name := range files {
		data := read(name)
		full := filepath.Join(path, name)
		put := func(b []byte) {
			t.Helper()
			if err := os.WriteFile(full, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		// a bit anywhere; every bit of the manifest would take too long, each
		// byte is enough
		for bit := 0; bit < len(data)*8; bit += 8*max(1, len(data)/40) + 1 {
			put(flip(data, bit))
			report, err := Verify(path)
			if err != nil || len(report.Faults) == 0 || filepath.Base(report.Faults[0].Path) != name {
				t.Errorf("bit %d of %s: %+v %v", bit, name, report, err)
			}
		}
		put(flip(data, len(data)*8-1))
		switch name {
		case WeightsFile:
			try("last bit", name, "mask", "changed")
		case OptimizerFile:
			try("last bit", name, "v/embed.weight", "changed")
		case ManifestFile:
			try("last bit", name, "", "")
		default:
			try("last bit", name, "", "SHA-256")
		}
		put(nil)
		if name != ManifestFile {
			try("emptied", name, "", map[bool]string{true: "header is damaged", false: "truncated"}[isTensorFile(name)])
		} else {
			try("emptied", name, "", "not JSON")
		}
		put(data[:len(data)-1])
		switch name {
		case WeightsFile:
			try("truncated", name, "mask", "cut off after 2 of 3 bytes")
		case OptimizerFile:
			try("truncated", name, "v/embed.weight", "cut off after 255 of 256 bytes")
		case ManifestFile:
			try("truncated", name, "", "changed after it was written")
		default:
			try("truncated", name, "", "is truncated")
		}
		put(append(bytes.Clone(data), 'x'))
		if name != ManifestFile {
			try("grown", name, "", "has grown")
		} else {
			try("grown", name, "", "not JSON")
		}
		if isTensorFile(name) {
			n := headerLen(data)
			put(flip(data, 8*20))
			try("header", name, "", "header is damaged")
			put(append(bytes.Clone(data[:n]), make([]byte, len(data)-n)...))
			report, err := Verify(path)
			if err != nil || len(report.Faults) < 2 {
				t.Errorf("all zero: %v %v", report, err)
			}
		}
		if err := os.Remove(full); err != nil {
			t.Fatal(err)
		}
		try("removed", name, "", "is missing")
		if err := os.Mkdir(full, 0o700); err != nil {
			t.Fatal(err)
		}
		try("a folder", name, "", "not a regular file")
		if err := os.Remove(full); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(s.Dir(), stepName(1), name), full); err != nil {
			t.Fatal(err)
		}
		try("a link", name, "", "not a regular file")
		if err := os.Remove(full); err != nil {
			t.Fatal(err)
		}
		put(data)
	}
	if u, rejected := latest(t, dir); u != 2 || rejected != nil {
		t.Errorf("after all was put right: %d %v", u, rejected)
	}
}

func TestSurplusFileIsTold(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	save(t, s, 1)
	path := filepath.Join(s.Dir(), stepName(1))
	if err := os.WriteFile(filepath.Join(path, "notes.txt"), []byte("good one"), 0o600); err != nil {
		t.Fatal(err)
	}
	report, err := Verify(path)
	if err != nil || report.Err() != nil || !slices.Equal(report.Surplus, []string{"notes.txt"}) {
		t.Errorf("%+v %v", report, err)
	}
}

func TestRenamedFolderIsRefused(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	save(t, s, 1, 2)
	if err := os.Rename(filepath.Join(s.Dir(), stepName(1)), filepath.Join(s.Dir(), stepName(9))); err != nil {
		t.Fatal(err)
	}
	u, rejected := latest(t, dir)
	if u != 2 || len(rejected) != 1 || !strings.Contains(rejected[0].Err.Error(), "the folder was renamed") {
		t.Errorf("%d %v", u, rejected)
	}
	report, err := Verify(rejected[0].Path)
	if err != nil || len(report.Faults) != 1 {
		t.Errorf("%+v %v", report, err)
	}
}

func testManifest(t testing.TB) *Manifest {
	t.Helper()
	sum := func(name string) FileSum { return FileSum{Name: name, Size: 1, SHA256: "00"} }
	m := &Manifest{Format: Format, Version: Version, Update: 3, Created: "<now>", Files: []FileSum{sum(MetadataFile), sum(WeightsFile), sum(StateFile)}}
	m.Files[1].Tensors = []TensorSum{{Name: "b", DType: "F32", Shape: []int{2}}, {Name: "a", DType: "BF16", Shape: []int{}, CRC32C: 1 << 31}}
	sortSums(m.Files)
	return m
}

func TestManifestIsChecked(t *testing.T) {
	for want, change := range map[string]func(*Manifest){
		"":                              func(*Manifest) {},
		"has format":                    func(m *Manifest) { m.Format = "zip" },
		"has version 2":                 func(m *Manifest) { m.Version = 2 },
		"has the update -1":             func(m *Manifest) { m.Update = -1 },
		`file name "../x" is not`:       func(m *Manifest) { m.Files[0].Name = "../x" },
		`file name "/x" is not`:         func(m *Manifest) { m.Files[0].Name = "/x" },
		`file name "a\\b" is not`:       func(m *Manifest) { m.Files[0].Name = `a\b` },
		`file name "" is not`:           func(m *Manifest) { m.Files[0].Name = "" },
		"lists itself":                  func(m *Manifest) { m.Files[0].Name = ManifestFile },
		"want each file once":           func(m *Manifest) { m.Files[1].Name = m.Files[0].Name },
		"has the size -1":               func(m *Manifest) { m.Files[0].Size = -1 },
		"want each once":                func(m *Manifest) { m.Files[1].Tensors[1].Name = "a" },
		`unknown dtype "X"`:             func(m *Manifest) { m.Files[1].Tensors[0].DType = "X" },
		"does not list " + StateFile:    func(m *Manifest) { m.Files = m.Files[:2] },
		"does not list " + WeightsFile:  func(m *Manifest) { m.Files = slices.Delete(m.Files, 1, 2) },
		"does not list " + MetadataFile: func(m *Manifest) { m.Files = m.Files[1:] },
	} {
		m := testManifest(t)
		change(m)
		text, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		_, err = ParseManifest(text)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%v\nwant it to say %q", err, want)
		}
	}
	text, err := testManifest(t).Encode()
	if err != nil {
		t.Fatal(err)
	}
	for bit := range len(text) * 8 {
		if _, err := ParseManifest(flip(text, bit)); err == nil {
			t.Fatalf("bit %d of the manifest may be flipped", bit)
		}
	}
}

func TestManifestTooLarge(t *testing.T) {
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, ManifestFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Truncate(1<<40), f.Close()); err != nil {
		t.Skip(err) // a file system without holes
	}
	if _, err := ReadManifest(dir); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Error(err)
	}
}

func FuzzManifest(f *testing.F) {
	text, err := testManifest(f).Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text, true)
	f.Add([]byte(`{"format":"snug-checkpoint","version":1,"files":[{"name":"../../x","size":-1}]}`), true)
	f.Add([]byte(`{"format":"snug-checkpoint","version":1,"metric":{"value":"NaN"}}`), true)
	f.Fuzz(func(t *testing.T, text []byte, seal bool) {
		if seal { // give it a right hash, as a forger would
			var m Manifest
			if json.Unmarshal(text, &m) != nil {
				return
			}
			sealed, err := m.Encode()
			if err != nil {
				t.Fatal(err)
			}
			text = sealed
		}
		m, err := ParseManifest(text)
		if err != nil {
			return
		}
		for _, file := range m.Files {
			if filepath.Dir(filepath.Join("folder", file.Name)) != "folder" || file.Size < 0 {
				t.Errorf("accepts %+v", file)
			}
		}
	})
}
