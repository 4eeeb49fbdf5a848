//go:build !linux || !(amd64 || arm64) || nocuda

package main

import "errors"

func open(string) (compiler, error) {
	return nil, errors.New("NVRTC can be used in builds for Linux alone, without the tag nocuda")
}
