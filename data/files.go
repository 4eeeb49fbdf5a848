package data

import (
	"cmp"
	"fmt"
	"iter"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snug-ml/snug/internal/few"
)

// Formats of files.
const (
	FormatText    = "text"
	FormatJSONL   = "jsonl"
	FormatJSON    = "json"
	FormatCSV     = "csv"
	FormatTSV     = "tsv"
	FormatParquet = "parquet"
	FormatNPZ     = "npz"
)

// DefaultMaxRecord bounds one record or document in memory unless
// Options.MaxRecord says otherwise.
const DefaultMaxRecord = 64 << 20

// RecordLimit is what data.max_record allows; 0 is the default.
func RecordLimit(maxRecord int64) int64 { return cmp.Or(maxRecord, DefaultMaxRecord) }

// Options are how files become documents or records.
type Options struct {
	// Format of every file; empty means by the name of each file, where .gz and
	// .zst are looked through and an unknown ending means text.
	Format string `json:"format"`
	// Split cuts text files into documents: "file" (default), "paragraph" (at
	// blank lines), "line", or "chunk" (at the first line end after ChunkBytes).
	Split string `json:"split"`
	// ChunkBytes is the least size of a chunk; 0 means 16384.
	ChunkBytes int `json:"chunk_bytes"`
	// TextField holds the text of a record; empty means "text". A dot goes
	// into a nested object: "translation.en".
	TextField string `json:"text_field"`
	// GroupField, when set, holds the group of a record, so that for example
	// all comments of one thread fall in one split.
	GroupField string `json:"group_field"`
	// ArrayKey finds the array of records in a JSON file that is an object:
	// "data" for {"version": "1.1", "data": [...]}.
	ArrayKey string `json:"array_key"`
	// Comma separates CSV fields; 0 means ',' for .csv and a tab for .tsv.
	Comma rune `json:"comma"`
	// NoHeader means that a CSV or TSV file starts with data. Columns are then
	// named "1", "2", ...
	NoHeader bool `json:"no_header"`
	// Quotes is whether CSV fields may be quoted: "csv" (RFC 4180) or "none"
	// (a quote is a character like any other, a record is a line). Empty means
	// csv for .csv and none for .tsv.
	Quotes string `json:"quotes"`
	// Overlap of consecutive NPZ rows in tokens, as sliding windows leave it. A
	// row that begins with the last Overlap tokens of the row before continues
	// that row's document, without the repeated part.
	Overlap int `json:"overlap"`
	// MaxRecord bounds one document or record in bytes; 0 means
	// DefaultMaxRecord.
	MaxRecord int64 `json:"max_record"`
	// ReplaceInvalid replaces invalid UTF-8 by U+FFFD, and counts it; the default
	// is an error.
	ReplaceInvalid bool `json:"replace_invalid"`
}

// Splits of text files.
const (
	SplitFile      = "file"
	SplitParagraph = "paragraph"
	SplitLine      = "line"
	SplitChunk     = "chunk"
)

func (o *Options) setDefaults() error {
	if o.TextField == "" {
		o.TextField = "text"
	}
	if o.Split == "" {
		o.Split = SplitFile
	}
	if o.ChunkBytes == 0 {
		o.ChunkBytes = 16 << 10
	}
	if o.MaxRecord == 0 {
		o.MaxRecord = DefaultMaxRecord
	}
	formats := []string{"", FormatText, FormatJSONL, FormatJSON, FormatCSV, FormatTSV, FormatParquet, FormatNPZ}
	splits := []string{SplitFile, SplitParagraph, SplitLine, SplitChunk}
	switch {
	case !slices.Contains(formats, o.Format):
		return fmt.Errorf("data: format %q is not one of %s", o.Format, strings.Join(formats[1:], ", "))
	case !slices.Contains(splits, o.Split):
		return fmt.Errorf("data: split %q is not one of %s", o.Split, strings.Join(splits, ", "))
	case !slices.Contains([]string{"", QuotesCSV, QuotesNone}, o.Quotes):
		return fmt.Errorf("data: quotes %q is not one of %s, %s", o.Quotes, QuotesCSV, QuotesNone)
	case o.ChunkBytes < 0:
		return fmt.Errorf("data: chunk_bytes is %d, want more than 0", o.ChunkBytes)
	case o.MaxRecord < 0:
		return fmt.Errorf("data: max_record is %d bytes, want more than 0", o.MaxRecord)
	case o.Overlap < 0:
		return fmt.Errorf("data: overlap is %d tokens, want 0 or more", o.Overlap)
	}
	return nil
}

// columns are the top-level fields that a document is made of.
func (o *Options) columns() []string {
	var names []string
	for _, field := range []string{o.TextField, o.GroupField} {
		if field != "" {
			names = append(names, field)
		}
	}
	return names
}

// Files is a Source of the documents in files.
type Files struct {
	paths []string
	// common is the folder, with a trailing slash, that contains all paths.
	common string
	opt    Options
	left   []string
}

// OpenFiles expands patterns (see Glob), without the folders own, and checks the
// options. It reads nothing yet.
func OpenFiles(patterns []string, opt Options, own ...string) (*Files, error) {
	if len(patterns) == 0 {
		return nil, fmt.Errorf("data: no files given")
	}
	if err := opt.setDefaults(); err != nil {
		return nil, err
	}
	g := &globber{own: own}
	paths, err := g.files(patterns)
	if err != nil {
		return nil, err
	}
	return &Files{paths: paths, common: commonFolder(paths), opt: opt, left: g.left}, nil
}

// TellLeft says which folders the patterns cover and the files are not from.
func (f *Files) TellLeft(log func(format string, args ...any)) {
	if len(f.left) > 0 {
		log("data: leaving out %s: what runs write, and prepared data, is not read as data", few.Of(f.left))
	}
}

// commonFolder is the deepest folder that contains all files, with a trailing slash.
func commonFolder(paths []string) string {
	common := ""
	for i, p := range paths {
		folder, _ := filepath.Split(p)
		if i == 0 {
			common = folder
		}
		for !strings.HasPrefix(folder, common) {
			parent, _ := filepath.Split(filepath.Clean(common))
			if parent == common {
				return "" // one path is absolute, another is not
			}
			common = parent
		}
	}
	return common
}

// Paths lists the files in reading order.
func (f *Files) Paths() []string { return slices.Clone(f.paths) }

// Fingerprint implements Source.
func (f *Files) Fingerprint() (string, error) {
	return fingerprint(fmt.Sprintf("files %+v", f.opt), f.paths)
}

// Documents implements Source.
func (f *Files) Documents() iter.Seq2[Document, error] {
	return func(yield func(Document, error) bool) {
		for _, p := range f.paths {
			if !f.documents(p, yield) {
				return
			}
		}
	}
}

// Records streams the rows of JSONL, JSON, CSV and Parquet files.
func (f *Files) Records() iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		for _, p := range f.paths {
			format := f.format(p)
			if format == FormatText || format == FormatNPZ {
				why := "by its extension"
				if f.opt.Format != "" {
					why = "because of data.format"
				}
				yield(Record{}, fmt.Errorf("data: %s: read as %s %s, which has no records: want a .jsonl, .json, .csv, .tsv or .parquet file, or data.format for another extension", p, format, why))
				return
			}
			if !f.records(p, format, nil, func(r Record, err error) bool {
				if err == nil && f.opt.ReplaceInvalid {
					r.repair()
				}
				return yield(r, err)
			}) {
				return
			}
		}
	}
}

// documents yields the documents of one file; false ends the stream.
func (f *Files) documents(name string, yield func(Document, error) bool) bool {
	fail := func(err error) bool {
		yield(Document{}, err)
		return false
	}
	emit := func(doc Document) bool {
		if f.opt.GroupField == "" {
			doc.Group = filepath.ToSlash(strings.TrimPrefix(doc.ID, f.common))
		}
		if err := checkUTF8(&doc, f.opt.ReplaceInvalid); err != nil {
			return fail(err)
		}
		return yield(doc, nil)
	}
	switch format := f.format(name); format {
	case FormatText:
		more, err := textDocuments(name, f.opt, emit)
		if err != nil {
			return fail(err)
		}
		return more
	case FormatNPZ:
		more, err := npzDocuments(name, f.opt, emit)
		if err != nil {
			return fail(err)
		}
		return more
	default:
		return f.records(name, format, f.opt.columns(), func(r Record, err error) bool {
			if err != nil {
				return fail(err)
			}
			doc, err := r.document(f.opt)
			if err != nil {
				return fail(err)
			}
			return emit(doc)
		})
	}
}

// records yields the rows of one file; false ends the stream. Formats that
// store columns apart read only the named top-level ones; nil means all.
func (f *Files) records(name, format string, columns []string, yield func(Record, error) bool) bool {
	emit := func(r Record) bool { return yield(r, nil) }
	var more bool
	var err error
	switch format {
	case FormatJSONL:
		more, err = jsonlRecords(name, f.opt, emit)
	case FormatJSON:
		more, err = jsonRecords(name, f.opt, emit)
	case FormatParquet:
		more, err = parquetRecords(name, columns, f.opt.MaxRecord, emit)
	default:
		more, err = csvRecords(name, format, f.opt, emit)
	}
	if err != nil {
		yield(Record{}, err)
		return false
	}
	return more
}

// format is the format of one file.
func (f *Files) format(name string) string {
	if f.opt.Format != "" {
		return f.opt.Format
	}
	base := strings.ToLower(filepath.Base(name))
	base = strings.TrimSuffix(strings.TrimSuffix(base, ".gz"), ".zst")
	switch filepath.Ext(base) {
	case ".jsonl", ".ndjson":
		return FormatJSONL
	case ".json":
		return FormatJSON
	case ".csv":
		return FormatCSV
	case ".tsv":
		return FormatTSV
	case ".parquet":
		return FormatParquet
	case ".npz":
		return FormatNPZ
	}
	return FormatText
}
