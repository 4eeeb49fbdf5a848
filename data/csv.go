package data

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/snug-ml/snug/internal/few"
	"github.com/snug-ml/snug/internal/size"
)

// The ways to read quotes in CSV files.
const (
	QuotesCSV  = "csv"
	QuotesNone = "none"
)

// separatorHint is for a file that another separator or a quote makes no sense of.
const separatorHint = "is the separator right, is a quote missing?"

// csvRecords yields one record per row of a CSV or TSV file. Empty lines are skipped; a
// row with more or fewer fields than the first is an error. It returns false when emit
// asked to stop.
func csvRecords(name, format string, opt Options, emit func(Record) bool) (bool, error) {
	in, err := openLines(name)
	if err != nil {
		return false, err
	}
	defer func() { _ = in.Close() }() // only read: nothing to lose
	comma, quotes := ',', QuotesCSV
	if format == FormatTSV {
		comma, quotes = '\t', QuotesNone
	}
	if opt.Comma != 0 {
		comma = opt.Comma
	}
	if opt.Quotes != "" {
		quotes = opt.Quotes
	}
	if !utf8.ValidRune(comma) || slices.Contains([]rune{'"', '\r', '\n', utf8.RuneError}, comma) {
		return false, fmt.Errorf("data: %s: %q cannot separate fields", name, comma)
	}
	var rows rowReader = newQuotedRows(in, comma, opt.MaxRecord)
	if quotes == QuotesNone {
		rows = &plainRows{in: in, comma: []byte(string(comma)), limit: opt.MaxRecord}
	}
	return tableRecords(name, opt, rows, emit)
}

// rowReader reads rows of fields. The slice is overwritten by the next call.
type rowReader interface {
	// next returns the fields and the line where the row starts, or an error and
	// its line.
	next() (fields []string, line int64, err error)
}

// tableRecords names the columns and yields the rows.
func tableRecords(name string, opt Options, rows rowReader, emit func(Record) bool) (bool, error) {
	var columns []string
	for row := int64(0); ; {
		fields, line, err := rows.next()
		switch {
		case err == io.EOF && columns == nil:
			return false, fmt.Errorf("data: %s: no rows", name)
		case err == io.EOF:
			return true, nil
		case errors.Is(err, errTooLong):
			return false, fmt.Errorf("data: %s:%d: row longer than %d bytes; is a quote left open? (data.max_record allows longer rows)", name, line, opt.MaxRecord)
		case err != nil:
			return false, fmt.Errorf("data: %s:%d: %w", name, line, err)
		}
		if columns == nil {
			if columns, err = columnNames(fields, opt.NoHeader); err != nil {
				return false, fmt.Errorf("data: %s:%d: %w", name, line, err)
			}
			if !opt.NoHeader {
				continue
			}
		}
		if len(fields) != len(columns) {
			return false, fmt.Errorf("data: %s:%d: %s, want %d (%s): %s", name, line, size.Of(len(fields), "field"), len(columns), few.Of(columns), separatorHint)
		}
		row++
		rec := Record{File: name, Row: row, Line: line, fields: make(map[string]any, len(fields))}
		for i, f := range fields {
			rec.fields[columns[i]] = f
		}
		if !emit(rec) {
			return false, nil
		}
	}
}

// columnNames returns the names in the header, or numbers from 1 on.
func columnNames(first []string, noHeader bool) ([]string, error) {
	names := slices.Clone(first)
	seen := map[string]bool{}
	for i := range names {
		if noHeader {
			names[i] = strconv.Itoa(i + 1)
		}
		if seen[names[i]] {
			return nil, fmt.Errorf("column %q twice in the header; set data.no_header if the file has none", names[i])
		}
		seen[names[i]] = true
	}
	return names, nil
}

// quotedRows reads RFC 4180: fields may be quoted and may then contain separators, line
// ends and doubled quotes.
type quotedRows struct {
	limit *recordLimit
	csv   *csv.Reader
	line  int64 // of the last row read
}

func newQuotedRows(r io.Reader, comma rune, limit int64) *quotedRows {
	l := newRecordLimit(r, limit)
	separator := string(comma)
	c := csv.NewReader(&columnLimit{r: l, comma: separator[len(separator)-1]})
	c.Comma, c.FieldsPerRecord, c.ReuseRecord = comma, -1, true
	return &quotedRows{limit: l, csv: c}
}

func (q *quotedRows) next() ([]string, int64, error) {
	q.limit.next()
	fields, err := q.csv.Read()
	var parse *csv.ParseError
	switch {
	case errors.As(err, &parse):
		return nil, int64(parse.Line), fmt.Errorf("column %d of the row from line %d: %w: %s", parse.Column, parse.StartLine, parse.Err, separatorHint)
	case err != nil:
		return nil, q.line + 1, err
	}
	line, _ := q.csv.FieldPos(0)
	q.line = int64(line)
	return fields, q.line, nil
}

// plainRows reads one row per line; quotes have no meaning.
type plainRows struct {
	in     *input
	comma  []byte
	limit  int64
	line   int64
	buf    []byte
	fields []string
}

func (p *plainRows) next() ([]string, int64, error) {
	for {
		p.line++
		var err error
		if p.buf, err = appendLine(p.buf[:0], p.in.Reader, p.limit); err != nil {
			return nil, p.line, err
		}
		line := bytes.TrimRight(p.buf, "\r\n")
		if len(line) == 0 {
			continue
		}
		if bytes.Count(line, p.comma) >= maxColumns {
			return nil, p.line, errTooWide
		}
		p.fields = p.fields[:0]
		for f := range bytes.SplitSeq(line, p.comma) {
			p.fields = append(p.fields, string(f))
		}
		return p.fields, p.line, nil
	}
}
