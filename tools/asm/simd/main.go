// Command simd writes the assembly of internal/simd, its Go declarations, the
// functions that choose between it and portable Go, and the polynomial
// coefficients both share.
//
//	go run ./simd -o ../../internal/simd   (in tools/asm)
//
// With -cuda it writes the polynomials for the kernels of NVIDIA cards instead.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	dir := flag.String("o", "", "folder to write to")
	header := flag.String("cuda", "", "C++ header to write")
	flag.Parse()
	if (*dir == "") == (*header == "") || flag.NArg() != 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := generate(*dir, *header); err != nil {
		fmt.Fprintln(os.Stderr, "simd:", err)
		os.Exit(1)
	}
}

func generate(dir, header string) error {
	if header != "" {
		return writeHeader(header)
	}
	for _, write := range []func(dir string) error{writeCoefficients, writeDispatch, writeAssembly} {
		if err := write(dir); err != nil {
			return err
		}
	}
	return nil
}
