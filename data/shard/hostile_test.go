package shard

import (
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// Every single flipped bit in a shard is found when it is opened.
func TestEveryFlippedBit(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "p")
	prepare(t, dir, texts("ab", "c"), narrow, Options{Tokenizer: "bytes"})
	name := filepath.Join(dir, "train-00000.tokens")
	good, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	padding := headerSize + 5*2 // zeros up to a multiple of 8: they are padding
	for i := range good {
		if i >= padding && i < padding+6 {
			continue
		}
		for bit := range 8 {
			bad := []byte(string(good))
			bad[i] ^= 1 << bit
			s := mapped{name: "flipped", bytes: bad}
			var ends []int64
			if err := s.check(&ends); err == nil {
				t.Fatalf("bit %d of byte %d flipped and not found", bit, i)
			}
		}
	}
	for n := range good {
		s := mapped{name: "cut", bytes: good[:n]}
		var ends []int64
		if err := s.check(&ends); err == nil {
			t.Fatalf("cut to %d bytes and not found", n)
		}
	}
}

func TestManifestDamage(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "p")
	prepare(t, dir, texts("ab", "c"), narrow, Options{Tokenizer: "bytes"})
	name := filepath.Join(dir, manifestName)
	good, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ old, new, want string }{
		{`"name": "train-00000.tokens"`, `"name": "../train-00000.tokens"`, "leads out of the folder"},
		{`"name": "train-00000.tokens"`, `"name": ".."`, "leads out of the folder"},
		{`"name": "train-00000.tokens"`, `"name": "train-00001.tokens"`, "no such file"},
		{`"version": 1`, `"version": 2`, "version 2"},
		{`"tokens": 5`, `"tokens": 6`, "the manifest says"},
		{`"tokenizer": "bytes"`, `"tokenizer": "other"`, "another tokenizer"},
		{`"checksum": "`, `"checksum": "0`, "header does not match"},
		{`"eos"`, `"eoz"`, "unknown field"},
		{`}`, ``, "manifest.json"},
	} {
		bad := strings.Replace(string(good), test.old, test.new, 1)
		if err := os.WriteFile(name, []byte(bad), 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := Open(dir, Train)
		wantError(t, err, test.want)
	}
}

// A header that claims far more than the file has is refused before anything is
// allocated for it.
func TestHostileClaims(t *testing.T) {
	h := header{Width: 2, Vocab: 257, EOS: 256, Documents: 1, Tokens: 4}
	good := append(h.encode(), make([]byte, 16)...)
	for _, field := range []int{48, 56, 64, 72} {
		for _, claim := range []uint64{1 << 30, 1 << 40, 1<<63 - 1, 1 << 63, 1<<64 - 1} {
			bad := []byte(string(good))
			binary.LittleEndian.PutUint64(bad[field:], claim)
			resign(bad)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			s := mapped{bytes: bad}
			var ends []int64
			err := s.check(&ends)
			runtime.ReadMemStats(&after)
			if err == nil {
				t.Errorf("field %d claims %d and is believed", field, claim)
			}
			if n := after.TotalAlloc - before.TotalAlloc; n > 1<<16 {
				t.Errorf("field %d claims %d: %d bytes allocated", field, claim, n)
			}
		}
	}
}

// resign makes the header's checksum right.
func resign(b []byte) {
	binary.LittleEndian.PutUint32(b[headerCheck:], crc32.Checksum(b[:headerCheck], castagnoli))
}

// Ids above the vocabulary are caught on the way out even when the checksums
// are right.
func TestIdOutsideVocabulary(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "p")
	prepare(t, dir, texts("abc"), narrow, Options{})
	c := open(t, dir, Train)
	c.shards[0].Vocab = 256 // as if the header had claimed it
	wantError(t, c.Read(make([]int32, 4), 0), "id 256", "vocabulary of 256")
}

func FuzzShard(f *testing.F) {
	dir := filepath.Join(f.TempDir(), "p")
	prepare(f, dir, texts("ab", "c"), narrow, Options{Tokenizer: "bytes"})
	good, err := os.ReadFile(filepath.Join(dir, "train-00000.tokens"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:headerSize])
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= headerSize {
			resign(b) // else nothing gets past the first check
		}
		s := mapped{name: "fuzz", bytes: b}
		var ends []int64
		if err := s.check(&ends); err != nil {
			return
		}
		if n := len(ends); int64(n) != s.Documents || ends[n-1] != s.Tokens {
			t.Fatalf("%d documents ending at %d, header %+v", n, ends[n-1], s.header)
		}
		s.read(make([]int32, s.Tokens), 0)
	})
}
