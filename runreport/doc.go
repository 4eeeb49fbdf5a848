// Package runreport makes reports of runs from their directories: what was trained on
// what, with what result, where time and memory went, and how runs compare.
//
// A report depends only on the run directories: the same files give the same bytes, so it
// contains no clock time. Every table and picture names the file that it comes from.
package runreport
