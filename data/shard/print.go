package shard

import (
	"fmt"
	"io"
	"strings"
)

// barWidth is the length of the histogram's longest bar.
const barWidth = 40

// Print writes the report for a person.
func (r *Report) Print(w io.Writer) error {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("documents read     %12d", r.Documents)
	line("  empty, left out  %12d", r.EmptyDocuments)
	line("  bytes repaired   %12d", r.RepairedBytes)
	line("")
	line("%-18s %12s %12s", "split", "train", "held out")
	row := func(name string, train, held int64) { line("  %-16s %12d %12d", name, train, held) }
	row("groups", r.Train.Groups, r.HeldOut.Groups)
	row("documents", r.Train.Documents, r.HeldOut.Documents)
	row("tokens", r.Train.Tokens, r.HeldOut.Tokens)
	row("text bytes", r.Train.TextBytes, r.HeldOut.TextBytes)
	line("")
	line("duplicates (ignoring case and white space)")
	line("  within train     %12d", r.Duplicates.WithinTrain)
	line("  within held out  %12d", r.Duplicates.WithinHeldOut)
	line("  held out, in train %10d", r.Duplicates.Across)
	if n := r.Duplicates.WithinTrain + r.Duplicates.WithinHeldOut + r.Duplicates.Across; n > 0 {
		if r.Duplicates.Dropped {
			line("  all later copies were left out")
		}
		line("  such as %s", strings.Join(r.Duplicates.Examples, ", "))
	}
	line("")
	q := r.Train.Lengths
	line("tokens per training document: mean %.1f, min %d, 5%% %d, 25%% %d, median %d, 75%% %d, 95%% %d, 99%% %d, max %d",
		q.Mean, q.Min, q.P5, q.P25, q.P50, q.P75, q.P95, q.P99, q.Max)
	most := int64(1)
	for _, n := range r.Train.Histogram {
		most = max(most, n)
	}
	for i, n := range r.Train.Histogram {
		if n > 0 {
			bar := strings.Repeat("#", int((n*barWidth+most-1)/most))
			line("  %9d to %-9d %9d %s", int64(1)<<i, int64(1)<<(i+1)-1, n, bar)
		}
	}
	line("")
	p := r.Padding
	line("padding at %d tokens: %.1f %% fixed, %.1f %% in buckets of %v, %.3f %% packed",
		p.Length, 100*p.Fixed, 100*p.Buckets, p.BucketLengths, 100*p.Packed)
	_, err := io.WriteString(w, b.String())
	return err
}
