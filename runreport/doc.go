// Package runreport makes the report of runs over their directories: what was trained on
// what, with what result, where time and memory went, and how runs compare.
//
// A report depends on the run directories alone: the same files give the same bytes, so
// there is no clock in it. Every table and picture names the file that it comes from.
package runreport
