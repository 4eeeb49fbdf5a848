// Package table aligns cells in columns, for people.
package table

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// Format aligns rows of cells, two spaces between columns; those numbered in right
// are right-aligned. A row may have fewer cells than others. The last cell of a row
// is not padded.
func Format(rows [][]string, right ...int) string {
	var width []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(width) {
				width = append(width, 0)
			}
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	var out strings.Builder
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
			if slices.Contains(right, i) {
				cell = pad + cell
			} else {
				cell += pad
			}
			line.WriteString(cell + "  ")
		}
		out.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return out.String()
}
