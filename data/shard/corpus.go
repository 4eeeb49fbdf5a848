package shard

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sort"

	"github.com/snug-ml/snug/data"
	"github.com/snug-ml/snug/internal/filemap"
)

// Corpus is one split of a prepared folder, mapped. It implements data.Corpus.
type Corpus struct {
	id     string
	base   header
	shards []mapped
	// ends are the stream positions after each document, copied out of the mapping: 8
	// bytes per document, looked up with every window.
	ends   []int64
	tokens int64
	text   int64
}

var _ data.Corpus = (*Corpus)(nil)

// mapped is one shard in memory.
type mapped struct {
	header
	name       string
	bytes      []byte
	unmap      func() error
	firstToken int64 // stream position of its first id
}

// Open maps a split of the folder that Prepare made and checks every file completely:
// header, checksums, document borders.
func Open(dir string, split Split) (*Corpus, error) {
	m, err := ReadManifest(dir)
	if err != nil {
		return nil, err
	}
	files := m.files(split)
	if len(files) == 0 {
		return nil, fmt.Errorf("shard: %s has no %s split; prepare the data again with a held-out share above 0", dir, split)
	}
	c := &Corpus{}
	sum := sha256.New()
	for i, info := range files {
		s := mapped{name: filepath.Join(dir, info.Name), firstToken: c.tokens}
		err := s.open(&c.ends)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("shard: %w; delete %s and prepare the data again", err, dir), c.Close())
		}
		c.shards = append(c.shards, s)
		if err := agree(m, info, split, i, s.header); err != nil {
			return nil, errors.Join(fmt.Errorf("shard: %s: %w; delete %s and prepare the data again", s.name, err, dir), c.Close())
		}
		// A hash never fails to write.
		_, _ = sum.Write(s.encode())
		c.tokens, c.text = c.tokens+s.Tokens, c.text+s.TextBytes
	}
	c.base = c.shards[0].header
	c.id = hex.EncodeToString(sum.Sum(nil))
	return c, nil
}

// agree compares a shard with the manifest.
func agree(m *Manifest, info FileInfo, split Split, number int, h header) error {
	switch {
	case fmt.Sprintf("%08x", crc32.Checksum(h.encode(), castagnoli)) != info.Checksum:
		return fmt.Errorf("the header does not match the manifest")
	case info.Size != h.size() || info.Documents != h.Documents || info.Tokens != h.Tokens || info.TextBytes != h.TextBytes:
		return fmt.Errorf("%d bytes with %d documents and %d ids of %d bytes of text, the manifest says %d, %d, %d, %d",
			h.size(), h.Documents, h.Tokens, h.TextBytes, info.Size, info.Documents, info.Tokens, info.TextBytes)
	case h.Split != split || h.Shard != number:
		return fmt.Errorf("is part %d of %s, the manifest has part %d of %s", h.Shard, h.Split, number, split)
	case h.Vocab != m.VocabSize || h.EOS != m.EOS || h.Tokenizer != tokenizerHash(m.Tokenizer):
		return fmt.Errorf("made by another tokenizer (vocabulary %d, EOS %d) than the manifest's (%d, %d)", h.Vocab, h.EOS, m.VocabSize, m.EOS)
	}
	return nil
}

func tokenizerHash(name string) (b [16]byte) {
	sum := sha256.Sum256([]byte(name))
	copy(b[:], sum[:])
	return b
}

// open maps and checks one file and appends its document ends to ends.
func (s *mapped) open(ends *[]int64) (err error) {
	if s.bytes, s.unmap, err = filemap.Open(s.name); err != nil {
		return err
	}
	if err := guard(func() error { return s.check(ends) }); err != nil {
		return errors.Join(fmt.Errorf("%s: %w", s.name, err), s.unmap())
	}
	return nil
}

func (s *mapped) check(ends *[]int64) error {
	h, err := decodeHeader(s.bytes, int64(len(s.bytes)))
	if err != nil {
		return err
	}
	s.header = h
	end := headerSize + h.Tokens*int64(h.Width)
	if got := crc32.Checksum(s.bytes[headerSize:end], castagnoli); got != h.TokenSum {
		return fmt.Errorf("checksum of the ids is %08x, the header says %08x: the file is damaged", got, h.TokenSum)
	}
	if got := crc32.Checksum(s.bytes[h.indexAt():], castagnoli); got != h.IndexSum {
		return fmt.Errorf("checksum of the index is %08x, the header says %08x: the file is damaged", got, h.IndexSum)
	}
	*ends = slices.Grow(*ends, int(h.Documents))
	var last int64
	for d := range h.Documents {
		e := int64(binary.LittleEndian.Uint64(s.bytes[h.indexAt()+d*indexEntry:]))
		if e <= last || e > h.Tokens {
			return fmt.Errorf("document %d ends at id %d after one that ends at %d, of %d", d, e, last, h.Tokens)
		}
		if id := s.at(e - 1); id != h.EOS {
			return fmt.Errorf("document %d ends in id %d, want EOS %d", d, id, h.EOS)
		}
		*ends = append(*ends, s.firstToken+e)
		last = e
	}
	if last != h.Tokens {
		return fmt.Errorf("documents end at id %d of %d", last, h.Tokens)
	}
	return nil
}

// at returns the id at a position within the shard.
func (s *mapped) at(i int64) int32 {
	if s.Width == 2 {
		return int32(binary.LittleEndian.Uint16(s.bytes[headerSize+2*i:]))
	}
	return int32(binary.LittleEndian.Uint32(s.bytes[headerSize+4*i:]))
}

// read copies ids from position i of the shard on, and returns the largest.
func (s *mapped) read(dst []int32, i int64) (largest uint32) {
	if s.Width == 2 {
		src := s.bytes[headerSize+2*i:][:2*len(dst)]
		for k := range dst {
			id := uint32(binary.LittleEndian.Uint16(src[2*k:]))
			largest = max(largest, id)
			dst[k] = int32(id)
		}
		return largest
	}
	src := s.bytes[headerSize+4*i:][:4*len(dst)]
	for k := range dst {
		id := binary.LittleEndian.Uint32(src[4*k:])
		largest = max(largest, id)
		dst[k] = int32(id)
	}
	return largest
}

// guard turns the fault of a mapped file that was truncated, or whose disk failed, into
// an error.
func guard(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			if _, fault := r.(interface{ Addr() uintptr }); !fault {
				panic(r)
			}
			err = fmt.Errorf("the file was cut off while it was in use, or its disk failed: %v", r)
		}
	}()
	return f()
}

// ID implements data.Corpus.
func (c *Corpus) ID() string { return c.id }

// VocabSize implements data.Corpus.
func (c *Corpus) VocabSize() int { return c.base.Vocab }

// EOS implements data.Corpus.
func (c *Corpus) EOS() int32 { return c.base.EOS }

// Tokens implements data.Corpus.
func (c *Corpus) Tokens() int64 { return c.tokens }

// Documents implements data.Corpus.
func (c *Corpus) Documents() int64 { return int64(len(c.ends)) }

// Bytes implements data.Corpus.
func (c *Corpus) Bytes() int64 { return c.text }

// DocumentEnd implements data.Corpus.
func (c *Corpus) DocumentEnd(d int64) int64 { return c.ends[d] }

// Read implements data.Corpus.
func (c *Corpus) Read(dst []int32, off int64) error {
	if off < 0 || off > c.tokens || int64(len(dst)) > c.tokens-off {
		return fmt.Errorf("shard: ids %d to %d of %d", off, off+int64(len(dst)), c.tokens)
	}
	i := sort.Search(len(c.shards)-1, func(i int) bool { return c.shards[i+1].firstToken > off })
	for ; len(dst) > 0; i++ {
		s := &c.shards[i]
		at := off - s.firstToken
		n := int(min(int64(len(dst)), s.Tokens-at))
		var largest uint32
		if err := guard(func() error { largest = s.read(dst[:n], at); return nil }); err != nil {
			return fmt.Errorf("shard: %s: %w", s.name, err)
		}
		if int64(largest) >= int64(s.Vocab) {
			return fmt.Errorf("shard: %s: id %d at %d or after, outside the vocabulary of %d: the file is damaged", s.name, largest, at, s.Vocab)
		}
		dst, off = dst[n:], off+int64(n)
	}
	return nil
}

// Close unmaps the files. Nothing may read the corpus afterwards.
func (c *Corpus) Close() error {
	var errs []error
	for _, s := range c.shards {
		errs = append(errs, s.unmap())
	}
	c.shards, c.ends, c.tokens = nil, nil, 0
	return errors.Join(errs...)
}
