package remote

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"
	"github.com/snug-ml/snug/data/safetensors"
)

// PackSuffix marks a packed file.
const PackSuffix = ".snugpak"

// packMagic starts a packed file. Blocks follow: raw length, packed length
// (little-endian 32 bits each), stride, kind, and the packed bytes; a block of
// raw length 0 ends the file.
const packMagic = "SNUGPAK1"

// blockSize is the largest raw length of a block. It bounds what a reader allocates.
const blockSize = 4 << 20

// Kinds of a block.
const (
	kindStored = 0 // not shuffled, not compressed
	kindZstd   = 1 // shuffled by stride, then one zstd frame
)

// region is a part of a file whose elements have a common width.
type region struct {
	size   int64
	stride int // bytes of an element
}

// regions finds the regions of a safetensors file. Of the bytes of a float only the high
// ones (sign, exponent) are predictable; grouped by their place in the element they
// compress (bf16 weights to about 70 %), mixed they do not.
func regions(tensors []safetensors.Info, size int64) []region {
	data := int64(0)
	for _, t := range tensors {
		data += t.Size
	}
	list := []region{{size - data, 1}}
	for _, t := range tensors {
		stride := max(t.DType.Bits()/8, 1)
		if last := &list[len(list)-1]; last.stride == stride {
			last.size += t.Size
		} else {
			list = append(list, region{t.Size, stride})
		}
	}
	return list
}

// encoder and decoder are made once; EncodeAll and DecodeAll may be called from
// several goroutines. The encoder works with one thread for equal output.
var encoder = sync.OnceValue(func() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false))
	if err != nil {
		panic(err) // the options are constants
	}
	return e
})

var decoder = sync.OnceValue(func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(blockSize), zstd.WithDecoderMaxWindow(2*blockSize))
	if err != nil {
		panic(err) // the options are constants
	}
	return d
})

// pack writes src, whose regions are given, in packed form. Equal input gives equal
// output.
func pack(w io.Writer, src io.Reader, stretches []region) error {
	if _, err := io.WriteString(w, packMagic); err != nil {
		return err
	}
	raw, shuffled, packed := make([]byte, blockSize), make([]byte, blockSize), []byte(nil)
	for _, r := range stretches {
		for left := r.size; left > 0; {
			// A whole number of elements, so that the next block starts with one.
			n := min(left, blockSize/int64(r.stride)*int64(r.stride))
			if _, err := io.ReadFull(src, raw[:n]); err != nil {
				return err
			}
			left -= n
			shuffle(shuffled[:n], raw[:n], r.stride)
			packed = encoder().EncodeAll(shuffled[:n], packed[:0])
			kind, body := byte(kindZstd), packed
			if int64(len(packed)) >= n {
				kind, body = kindStored, raw[:n]
			}
			if err := writeBlock(w, uint32(n), byte(r.stride), kind, body); err != nil {
				return err
			}
		}
	}
	return writeBlock(w, 0, 1, kindStored, nil)
}

func writeBlock(w io.Writer, raw uint32, stride, kind byte, body []byte) error {
	var head [10]byte
	binary.LittleEndian.PutUint32(head[:], raw)
	binary.LittleEndian.PutUint32(head[4:], uint32(len(body)))
	head[8], head[9] = stride, kind
	if _, err := w.Write(head[:]); err != nil {
		return err
	}
	_, err := w.Write(body)
	return err
}

// unpack reverses pack. It writes at most size bytes and fails if there are not
// exactly as many.
func unpack(w io.Writer, src io.Reader, size int64) error {
	var magic [len(packMagic)]byte
	if _, err := io.ReadFull(src, magic[:]); err != nil || string(magic[:]) != packMagic {
		return errors.New("not a packed file: it starts with other bytes")
	}
	var body, shuffled, raw []byte
	for {
		var head [10]byte
		if _, err := io.ReadFull(src, head[:]); err != nil {
			return fmt.Errorf("packed file: it ends before its end mark: %w", err)
		}
		n, packed := int64(binary.LittleEndian.Uint32(head[:])), int64(binary.LittleEndian.Uint32(head[4:]))
		stride, kind := int(head[8]), head[9]
		switch {
		case n > blockSize || packed > blockSize || stride == 0 || kind > kindZstd || kind == kindStored && packed != n:
			return fmt.Errorf("packed file: block of %d bytes packed to %d, stride %d, kind %d is not valid", n, packed, stride, kind)
		case n > size:
			return errors.New("packed file: it has more bytes than it should")
		case n == 0:
			if size != 0 {
				return fmt.Errorf("packed file: it ends %d bytes early", size)
			}
			if k, err := src.Read(head[:1]); k != 0 || err != io.EOF {
				return errors.New("packed file: it has bytes after its end mark")
			}
			return nil
		}
		size -= n
		if int64(cap(body)) < packed {
			body = make([]byte, packed)
		}
		body = body[:packed]
		if _, err := io.ReadFull(src, body); err != nil {
			return fmt.Errorf("packed file: it ends inside a block: %w", err)
		}
		out := body
		if kind == kindZstd {
			var err error
			if shuffled, err = decoder().DecodeAll(body, shuffled[:0]); err != nil {
				return fmt.Errorf("packed file: %w", err)
			}
			if int64(len(shuffled)) != n {
				return fmt.Errorf("packed file: a block has %d bytes instead of %d", len(shuffled), n)
			}
			if int64(cap(raw)) < n {
				raw = make([]byte, n)
			}
			out = raw[:n]
			unshuffle(out, shuffled, stride)
		}
		if _, err := w.Write(out); err != nil {
			return err
		}
	}
}

// shuffle groups the bytes of src by their place in an element: first all
// first bytes, then all second ones, ... A remainder shorter than an element is
// copied to the end.
func shuffle(dst, src []byte, stride int) {
	if stride == 1 {
		copy(dst, src)
		return
	}
	n := len(src) / stride
	for p := range stride {
		plane := dst[p*n : (p+1)*n]
		for i := range plane {
			plane[i] = src[i*stride+p]
		}
	}
	copy(dst[n*stride:], src[n*stride:])
}

// unshuffle reverses shuffle.
func unshuffle(dst, src []byte, stride int) {
	if stride == 1 {
		copy(dst, src)
		return
	}
	n := len(src) / stride
	for p := range stride {
		for i, b := range src[p*n : (p+1)*n] {
			dst[i*stride+p] = b
		}
	}
	copy(dst[n*stride:], src[n*stride:])
}
