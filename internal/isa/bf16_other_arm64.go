//go:build !linux && !darwin

package isa

func hasBF16() bool { return false }
