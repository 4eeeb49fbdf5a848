package pytorch

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// zipped is an archive as torch.save lays it out, of a pickle and one storage.
func zipped(t testing.TB, method uint16, pickle string, storage []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, e := range []struct {
		name string
		data []byte
	}{{"m/data.pkl", []byte(pickle)}, {"m/byteorder", []byte("little")}, {"m/data/0", storage}} {
		f, err := w.CreateHeader(&zip.FileHeader{Name: e.name, Method: method})
		if err == nil {
			_, err = f.Write(e.data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func text(s string) string {
	return "X" + string(binary.LittleEndian.AppendUint32(nil, uint32(len(s)))) + s
}

// persistent pushes a storage of n floats.
func persistent(n byte) string {
	return "(" + text("storage") + "ctorch\nFloatStorage\n" + text("0") + text("cpu") + "K" + string(n) + "tQ"
}

// tensor pushes a view of a storage of n floats: args are offset, shape and strides.
func tensor(n byte, args string) string {
	return "ctorch._utils\n_rebuild_tensor_v2\n(" + persistent(n) + args + "\x89ccollections\nOrderedDict\n)RtR"
}

// state is the pickle of a dictionary with one tensor.
func state(value string) string { return "\x80\x02}" + text("w") + value + "s." }

var refused = map[string]struct{ pickle, want string }{
	"os.system":          {"\x80\x02cposix\nsystem\n" + text("touch owned") + "\x85R.", `byte 2 (GLOBAL): the file asks for "posix.system", which no tensor needs; nothing of it was executed`},
	"eval":               {"\x80\x02cbuiltins\neval\n" + text("1/0") + "\x85R.", `asks for "builtins.eval"`},
	"eval by STACK":      {"\x80\x04\x8c\x08builtins\x8c\x04eval\x93\x8c\x011\x85R.", `byte 18 (STACK_GLOBAL): the file asks for "builtins.eval"`},
	"torch.load":         {"\x80\x02ctorch\nload\n" + text("f") + "\x85R.", `asks for "torch.load"`},
	"getattr":            {"\x80\x02cbuiltins\ngetattr\n.", `asks for "builtins.getattr"`},
	"INST":               {"\x80\x02(iposix\nsystem\n.", "byte 3: opcode 0x69 has no place in a file of tensors"},
	"OBJ":                {"\x80\x02(cposix\nsystem\no.", `asks for "posix.system"`},
	"NEWOBJ":             {"\x80\x02ccollections\nOrderedDict\n)\x81.", "opcode 0x81"},
	"EXT":                {"\x80\x02\x82\x01.", "opcode 0x82"},
	"called storage":     {"\x80\x02ctorch\nFloatStorage\n)R.", "torch.FloatStorage is called with a tuple"},
	"called number":      {"\x80\x02K\x01)R.", "a number is called with a tuple"},
	"built tensor":       {state(tensor(4, "K\x00K\x04\x85K\x01\x85") + "}b"), "(BUILD): want a dictionary, got a tensor"},
	"protocol 0":         {"(dp0\n.", "opcode 0x64"},
	"protocol 9":         {"\x80\x09N.", "protocol 9 is not read"},
	"stack underflow":    {"\x80\x02R.", "the stack is empty"},
	"pop below a mark":   {"\x80\x02K\x01(0.", "the stack is empty"},
	"no mark":            {"\x80\x02t.", "no mark is set"},
	"odd items":          {"\x80\x02}(K\x01u.", "a key has no value"},
	"unknown memo":       {"\x80\x02h\x07.", "nothing is remembered as 7"},
	"left over":          {"\x80\x02NN.", "1 values are left over"},
	"trailing":           {"\x80\x02}.}", "1 bytes follow the end"},
	"cut string":         {"\x80\x02X\xff\xff\xff\x7fabc", "(BINUNICODE): the pickle ends here"},
	"huge string":        {"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xff.", "the pickle ends here"},
	"huge integer":       {"\x80\x02\x8a\x09123456789.", "an integer of 9 bytes"},
	"no end":             {"\x80\x02}", "byte 3: the pickle ends here"},
	"empty":              {"", "the pickle ends here"},
	"root is a number":   {"\x80\x02K\x01.", "the file has a number, want a dictionary of tensors"},
	"key is a number":    {"\x80\x02}K\x01K\x02s.", "a number is a key"},
	"value is a number":  {"\x80\x02}" + text("w") + "K\x02s.", `tensor "w": is a number`},
	"storage too short":  {state(tensor(5, "K\x00K\x05\x85K\x01\x85")), `storage "0" has 16 bytes, 5 elements of F32 need another number`},
	"storage too long":   {state(tensor(3, "K\x00K\x03\x85K\x01\x85")), `storage "0" has 16 bytes`},
	"offset outside":     {state(tensor(4, "K\x04K\x01\x85K\x01\x85")), "does not lie inside storage"},
	"negative offset":    {state(tensor(4, "J\xff\xff\xff\xffK\x01\x85K\x01\x85")), "does not lie inside storage"},
	"shape outside":      {state(tensor(4, "K\x00K\x05\x85K\x01\x85")), "does not lie inside storage"},
	"stride outside":     {state(tensor(4, "K\x00K\x02\x85K\x04\x85")), "does not lie inside storage"},
	"negative stride":    {state(tensor(4, "K\x03K\x04\x85J\xff\xff\xff\xff\x85")), "want whole numbers from 0"},
	"overflowing stride": {state(tensor(4, "K\x00K\x03\x85\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f\x85")), "does not lie inside storage"},
	"overflowing offset": {state(tensor(4, "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7fK\x02\x85K\x01\x85")), "does not lie inside storage"},
	"overflowing shape":  {state(tensor(4, "K\x00\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f\x86K\x00K\x00\x86")), "overflows"},
	"terabytes by 0":     {state(tensor(4, "K\x00\x8a\x06\x00\x00\x00\x00\x00\x01\x85K\x00\x85")), "it repeats its values"},
	"ranks differ":       {state(tensor(4, "K\x00K\x02K\x02\x86K\x01\x85")), "2 sizes and 1 strides"},
	"bool as a size":     {state(tensor(4, "K\x00\x88\x85K\x01\x85")), "want whole numbers from 0"},
	"no such storage":    {state(strings.Replace(tensor(4, "K\x00K\x04\x85K\x01\x85"), text("0"), text("9"), 1)), `storage "9" is not in the archive`},
	"storage elsewhere":  {state(strings.Replace(tensor(4, "K\x00K\x04\x85K\x01\x85"), text("0"), text("../data.pkl"), 1)), "is not in the archive"},
}

func TestHostilePicklesAreRefused(t *testing.T) {
	for name, c := range refused {
		t.Run(name, func(t *testing.T) {
			_, err := Parse(zipped(t, zip.Store, c.pickle, make([]byte, 16)))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	// The tensors of this table are right except for what is named.
	f, err := Parse(zipped(t, zip.Store, state(tensor(4, "K\x00K\x04\x85K\x01\x85")), make([]byte, 16)))
	if err != nil || len(f.Tensors()) != 1 {
		t.Errorf("a right one: %v", err)
	}
}

// Anything that grows faster than the file is cut off.
func TestBombs(t *testing.T) {
	long := 20 << 20
	for name, pickle := range map[string]string{
		"nesting":    "\x80\x02" + strings.Repeat("]", long),
		"deep list":  "\x80\x02]" + strings.Repeat("]\x85", long/2),
		"marks":      "\x80\x02" + strings.Repeat("(", long),
		"memo":       "\x80\x04}" + strings.Repeat("\x94", long),
		"doubling":   "\x80\x02]q\x00" + strings.Repeat("(h\x00h\x00eh\x00", long/8),
		"forgotten":  "\x80\x02" + strings.Repeat("}0", long/2),
		"dictionary": "\x80\x02}" + strings.Repeat("K\x01K\x01s", long/5),
		"tuples":     "\x80\x02)" + strings.Repeat("q\x00h\x00\x86", long/5),
	} {
		t.Run(name, func(t *testing.T) {
			raw := zipped(t, zip.Store, pickle+".", make([]byte, 16))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Parse(raw)
			runtime.ReadMemStats(&after)
			if err == nil {
				t.Fatal("was read")
			}
			if grew := after.TotalAlloc - before.TotalAlloc; grew > 1<<30 {
				t.Errorf("%d bytes were allocated: %v", grew, err)
			}
		})
	}
}

func TestOtherFilesOfTorch(t *testing.T) {
	for file, want := range map[string]string{
		"legacy.bin":         "the format of PyTorch before 1.6, which is not read; write it again: python -c 'import sys, torch;",
		"pickled-module.bin": `asks for "torch.nn.modules.container.Sequential"`,
		"checkpoint.bin":     `tensor "model": is a dictionary: want a dictionary of tensors alone`,
		"script.bin":         "is a TorchScript program",
		"tensor.bin":         "the file has a tensor, want a dictionary",
	} {
		path := filepath.Join("testdata", file)
		_, err := Open(path)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want %q", file, err, want)
		}
	}
}

func TestArchives(t *testing.T) {
	good := state(tensor(4, "K\x00K\x04\x85K\x01\x85"))
	raw := zipped(t, zip.Store, good, []byte("0123456789abcdef"))
	refuse := func(name string, raw []byte, want string) {
		t.Helper()
		if _, err := Parse(raw); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	refuse("compressed", zipped(t, zip.Deflate, good, make([]byte, 16)), "is compressed: torch.save never does that")
	refuse("truncated", raw[:len(raw)-30], "is cut or damaged")
	refuse("git-lfs", []byte("version https://git-lfs"), "is not a file of torch.save")
	refuse("no pickle", bytes.ReplaceAll(raw, []byte("m/data.pkl"), []byte("m/data.pkk")), "has 0 entries called */data.pkl")
	refuse("two folders", bytes.ReplaceAll(raw, []byte("m/byteorder"), []byte("n/byteorder")), "is outside folder")
	refuse("big-endian", bytes.ReplaceAll(raw, []byte("little"), []byte("bigbig")), `in "bigbig" byte order`)

	// A local header that points at another entry's bytes.
	dir := bytes.Index(raw, []byte("PK\x01\x02"))
	second := dir + 4 + bytes.Index(raw[dir+4:], []byte("PK\x01\x02"))
	over := bytes.Clone(raw)
	copy(over[second+42:second+46], over[dir+42:dir+46]) // offset of the first
	refuse("overlapping", over, "overlap")

	// One bit of the values.
	flipped := bytes.Clone(raw)
	flipped[bytes.Index(raw, []byte("0123456789abcdef"))] ^= 1
	f, err := Parse(flipped)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Tensor("w"); err == nil || !strings.Contains(err.Error(), `tensor "w": entry "m/data/0" is damaged: its checksum is`) {
		t.Errorf("a flipped bit: %v", err)
	}
	// One bit of the pickle.
	flipped = bytes.Clone(raw)
	flipped[bytes.Index(raw, []byte("storage"))] ^= 1
	refuse("flipped", flipped, "is damaged: its checksum is")
}

// Every cut and every flipped bit of a real file is an error or harmless.
func TestEveryBit(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("testdata", "module.bin"))
	if err != nil {
		t.Fatal(err)
	}
	for n := range raw {
		if f, err := Parse(raw[:n]); err == nil {
			t.Errorf("the first %d of %d bytes are a file of %d tensors", n, len(raw), len(f.Tensors()))
		}
	}
	for i := range 8 * len(raw) {
		bad := bytes.Clone(raw)
		bad[i/8] ^= 1 << (i % 8)
		if f, err := Parse(bad); err == nil {
			readAll(t, f)
		}
	}
}

func readAll(t testing.TB, f *File) {
	for _, info := range f.Tensors() {
		x, err := f.Tensor(info.Name)
		if err == nil && int64(len(x.Data)) != info.Size {
			t.Errorf("%s has %d bytes, want %d", info.Name, len(x.Data), info.Size)
		}
	}
}

func FuzzParse(f *testing.F) {
	files, err := filepath.Glob(filepath.Join("testdata", "*.bin"))
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if file, err := Parse(raw); err == nil {
			readAll(t, file)
		}
	})
}

// FuzzPickle is not stopped by checksums.
func FuzzPickle(f *testing.F) {
	for _, c := range refused {
		f.Add([]byte(c.pickle))
	}
	f.Add([]byte(state(tensor(4, "K\x00K\x04\x85K\x01\x85"))))
	f.Fuzz(func(t *testing.T, pickle []byte) {
		if file, err := Parse(zipped(t, zip.Store, string(pickle), make([]byte, 16))); err == nil {
			readAll(t, file)
		}
	})
}
