package data

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
	"github.com/pierrec/lz4/v4"
)

// The library trusts what a file claims. These are bounds on claims, checked before
// it sees them.
const (
	// maxPage bounds the size of an unpacked page. Writers make pages of about 1 MiB.
	maxPage = 256 << 20
	// maxPages bounds the pages that are in memory together: one per column.
	maxPages = 1 << 30
	// maxValues bounds the values of a page: many can take few bytes, as runs. Writers
	// put at most a row group's values into one, about a million.
	maxValues = 16 << 20
	// maxSchemaDepth bounds groups within groups, which the library descends into.
	maxSchemaDepth = 100
)

// checkFooter makes sure that the schema is no deeper than real schemas are.
func checkFooter(f io.ReaderAt, at, size int64) error {
	var meta format.FileMetaData
	var compact thrift.CompactProtocol
	in := bufio.NewReader(io.NewSectionReader(f, at, size))
	if err := thrift.NewDecoder(compact.NewReader(in)).Decode(&meta); err != nil {
		return fmt.Errorf("its footer is damaged: %w", err)
	}
	var open []int32 // children still to come, for each open group
	for _, e := range meta.Schema {
		for len(open) > 0 && open[len(open)-1] == 0 {
			open = open[:len(open)-1]
		}
		if len(open) > 0 {
			open[len(open)-1]--
		}
		if n := e.NumChildren.V; n > 0 {
			open = append(open, n)
		}
		if len(open) > maxSchemaDepth {
			return fmt.Errorf("column %.40q is nested in more than %d groups", e.Name, maxSchemaDepth)
		}
	}
	return nil
}

// checkPages walks the page headers of a column chunk and refuses sizes that do not
// fit the file or that no writer makes, before the library allocates for them. It
// returns the bytes of the largest page, unpacked.
func checkPages(f io.ReaderAt, fileSize int64, meta format.ColumnMetaData) (largest int64, err error) {
	at := meta.DataPageOffset
	if d := meta.DictionaryPageOffset; d > 0 && d < at {
		at = d
	}
	if at < 4 || meta.TotalCompressedSize < 0 || at > fileSize || meta.TotalCompressedSize > fileSize-at {
		return 0, fmt.Errorf("claims %d bytes at byte %d of a file of %d", meta.TotalCompressedSize, at, fileSize)
	}
	for end := at + meta.TotalCompressedSize; at < end; {
		section := io.NewSectionReader(f, at, end-at)
		buffered := bufio.NewReaderSize(section, 512)
		var h format.PageHeader
		var compact thrift.CompactProtocol
		if err := thrift.NewDecoder(compact.NewReader(buffered)).Decode(&h); err != nil {
			return 0, fmt.Errorf("page header at byte %d: %w", at, err)
		}
		read, err := section.Seek(0, io.SeekCurrent)
		if err != nil {
			return 0, err
		}
		at += read - int64(buffered.Buffered())
		if h.CompressedPageSize < 0 || int64(h.CompressedPageSize) > end-at || h.UncompressedPageSize < 0 || h.UncompressedPageSize > maxPage {
			return 0, fmt.Errorf("page at byte %d claims %d bytes that unpack to %d; %d are left and %d allowed", at, h.CompressedPageSize, h.UncompressedPageSize, end-at, maxPage)
		}
		if n := pageValues(h); n < 0 || n > maxValues {
			return 0, fmt.Errorf("page at byte %d claims %d values, %d are allowed", at, n, maxValues)
		}
		if err := checkUnpacked(io.NewSectionReader(f, at, int64(h.CompressedPageSize)), meta.Codec, h); err != nil {
			return 0, fmt.Errorf("page at byte %d: %w", at, err)
		}
		largest = max(largest, int64(h.UncompressedPageSize))
		at += int64(h.CompressedPageSize)
	}
	return largest, nil
}

// pageValues returns how many values a page claims.
func pageValues(h format.PageHeader) int32 {
	return max(h.DataPageHeader.V.NumValues, h.DataPageHeaderV2.V.NumValues, h.DictionaryPageHeader.V.NumValues)
}

// checkUnpacked makes sure that a page unpacks to no more than it claims. The library
// takes whatever comes, however much.
func checkUnpacked(page *io.SectionReader, codec format.CompressionCodec, h format.PageHeader) error {
	claim := int64(h.UncompressedPageSize)
	if v2 := h.DataPageHeaderV2; v2.Valid {
		if v2.V.IsCompressed.Valid && !v2.V.IsCompressed.V {
			return nil
		}
		// Its levels are not compressed.
		levels := int64(v2.V.DefinitionLevelsByteLength) + int64(v2.V.RepetitionLevelsByteLength)
		if v2.V.DefinitionLevelsByteLength < 0 || v2.V.RepetitionLevelsByteLength < 0 || levels > page.Size() || levels > claim {
			return fmt.Errorf("levels of %d bytes in a page of %d", levels, page.Size())
		}
		page, claim = io.NewSectionReader(page, levels, page.Size()-levels), claim-levels
	}
	if page.Size() == 0 {
		return nil
	}
	var in io.Reader
	switch codec {
	case format.Uncompressed:
		return nil
	case format.Snappy:
		head := make([]byte, min(page.Size(), 10)) // a number of at most 10 bytes
		if _, err := io.ReadFull(page, head); err != nil {
			return err
		}
		if n, err := snappy.DecodedLen(head); err != nil || int64(n) > claim {
			return errors.Join(fmt.Errorf("unpacks to %d bytes and claims %d", n, claim), err)
		}
		return nil
	case format.Gzip:
		z, err := gzip.NewReader(page)
		if err != nil {
			return err
		}
		in = z
	case format.Zstd:
		z, err := zstd.NewReader(page, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxZstdWindow))
		if err != nil {
			return err
		}
		defer z.Close()
		in = z
	case format.Brotli:
		in = brotli.NewReader(page)
	case format.Lz4Raw:
		// The library tries larger and larger buffers, endlessly if the page is
		// damaged.
		raw := make([]byte, page.Size())
		if _, err := io.ReadFull(page, raw); err != nil {
			return err
		}
		if claim > 255*page.Size()+64 { // no block unpacks to that
			return fmt.Errorf("claims that %d bytes unpack to %d", page.Size(), claim)
		}
		if _, err := lz4.UncompressBlock(raw, make([]byte, claim)); err != nil {
			return fmt.Errorf("does not unpack to the %d bytes it claims: %w", claim, err)
		}
		return nil
	default: // the library has no other, and reports it
		return nil
	}
	n, err := io.Copy(io.Discard, io.LimitReader(in, claim+1))
	if err != nil {
		return fmt.Errorf("unpack: %w", err)
	}
	if n > claim {
		return fmt.Errorf("unpacks to more than the %d bytes it claims", claim)
	}
	return nil
}
