package data

// Ways to read quotes in CSV files.
const (
	QuotesCSV  = "csv"
	QuotesNone = "none"
)
