// Package metric measures predictions.
//
// It promises that a figure is what its name says, by the definition that is
// cited at it, and that nothing is smoothed or interpolated in its favour: the
// area under the precision-recall curve is average precision and not the
// trapezoid between points, tied scores cross a threshold together, and a ratio
// without a denominator is 0 where a convention wants a number and NaN where it
// would be a claim.
package metric
