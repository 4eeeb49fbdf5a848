// Package metric measures predictions.
//
// It promises that a figure follows the definition that is cited with it, and that
// nothing is smoothed or interpolated in its favor: the area under the precision-recall
// curve is average precision and not the trapezoid between points, tied scores cross a
// threshold together, and a ratio with denominator 0 is 0 where a convention requires a
// number and NaN where a number would claim something.
package metric
