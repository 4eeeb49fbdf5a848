package shard

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
)

// writer writes the shards of one split, each of about limit ids.
type writer struct {
	dir   string
	base  header // what all shards have in common
	limit int64
	files []FileInfo

	h    header // of the open shard
	name string
	file *os.File
	buf  *bufio.Writer
	ends []byte // index of the open shard
	raw  []byte // ids of one document, encoded
}

// add writes one document and its EOS.
func (w *writer) add(tokens []int32, textBytes int64) error {
	if w.file == nil {
		if err := w.open(); err != nil {
			return err
		}
	}
	w.raw = w.raw[:0]
	for _, id := range tokens {
		if id < 0 || int(id) >= w.h.Vocab {
			return fmt.Errorf("id %d outside the vocabulary of %d", id, w.h.Vocab)
		}
		w.put(id)
	}
	w.put(w.h.EOS)
	w.h.TokenSum = crc32.Update(w.h.TokenSum, castagnoli, w.raw)
	if _, err := w.buf.Write(w.raw); err != nil {
		return err
	}
	w.h.Documents++
	w.h.Tokens += int64(len(tokens)) + 1
	w.h.TextBytes += textBytes
	w.ends = binary.LittleEndian.AppendUint64(w.ends, uint64(w.h.Tokens))
	if w.h.Tokens >= w.limit {
		return w.finish()
	}
	return nil
}

func (w *writer) put(id int32) {
	if w.h.Width == 2 {
		w.raw = binary.LittleEndian.AppendUint16(w.raw, uint16(id))
	} else {
		w.raw = binary.LittleEndian.AppendUint32(w.raw, uint32(id))
	}
}

func (w *writer) open() error {
	w.h = w.base
	w.h.Shard = len(w.files)
	w.name = fmt.Sprintf("%s-%05d.tokens", w.h.Split, w.h.Shard)
	f, err := os.OpenFile(filepath.Join(w.dir, w.name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	w.file, w.ends = f, w.ends[:0]
	w.buf = bufio.NewWriterSize(f, 1<<20)
	// The header is written when its numbers are known; until then the zeros in its place
	// are not a magic number.
	_, err = w.buf.Write(make([]byte, headerSize))
	return err
}

// finish writes the index and the header and syncs the open shard, if any.
func (w *writer) finish() error {
	if w.file == nil {
		return nil
	}
	w.h.IndexSum = crc32.Checksum(w.ends, castagnoli)
	pad := w.h.indexAt() - headerSize - w.h.Tokens*int64(w.h.Width)
	if _, err := w.buf.Write(make([]byte, pad)); err != nil {
		return err
	}
	if _, err := w.buf.Write(w.ends); err != nil {
		return err
	}
	if err := w.buf.Flush(); err != nil {
		return err
	}
	if _, err := w.file.WriteAt(w.h.encode(), 0); err != nil {
		return err
	}
	if err := w.file.Sync(); err != nil {
		return err
	}
	if err := w.file.Close(); err != nil {
		return err
	}
	w.file = nil
	w.files = append(w.files, FileInfo{
		Name: w.name, Size: w.h.size(), Documents: w.h.Documents, Tokens: w.h.Tokens,
		TextBytes: w.h.TextBytes, Checksum: fmt.Sprintf("%08x", crc32.Checksum(w.h.encode(), castagnoli)),
	})
	return nil
}

// abandon closes the open shard after a failure.
func (w *writer) abandon() {
	if w.file != nil {
		_ = w.file.Close() // the failure that led here is the one to report
		w.file = nil
	}
}
