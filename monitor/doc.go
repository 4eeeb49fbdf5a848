// Package monitor watches runs from outside, using only the run directory, so that it
// works from another terminal, over a network file system, and after a crash.
//
// A session writes four files that are read here: [train.MetricsFile] (what was learned),
// [SamplesFile] (the machine), [LogFile] (messages) and [InfoFile] (what the run is, and
// how it ended). This package defines the formats of all except the first.
//
// [Open] opens a run directory, [Run.Poll] reads what was added to it, and [Run.Snapshot]
// is everything a view needs: a terminal, a page or a report. A snapshot depends only on
// the folder and on the time that is passed in, except that a run whose process is gone
// from this machine is known to have died. No text in it contains a control character: it
// is safe to print.
package monitor
