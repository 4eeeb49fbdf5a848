// Package npz reads NumPy arrays: .npy files of versions 1 to 3 and
// .npz archives of them, stored or deflated.
//
// It promises that hostile files cost no more than their own size: a header is
// at most 64 KiB, a shape is multiplied without overflow, and the bytes that a
// shape claims are allocated only as they arrive. Pickled objects are refused.
// Arrays stored in Fortran order come out in C order.
//
// The format is NumPy's NEP 1, with version 2 (long headers) and version 3
// (UTF-8 headers).
package npz
