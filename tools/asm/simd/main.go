// Command simd writes the assembly of internal/simd, its Go declarations, the
// functions that choose between it and portable Go, and the polynomial
// coefficients both share.
//
//	go run ./simd -o ../../internal/simd   (in tools/asm)
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	dir := flag.String("o", "", "folder to write to")
	flag.Parse()
	if *dir == "" || flag.NArg() != 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := generate(*dir); err != nil {
		fmt.Fprintln(os.Stderr, "simd:", err)
		os.Exit(1)
	}
}

func generate(dir string) error {
	for _, write := range []func(dir string) error{writeCoefficients, writeDispatch, writeAssembly} {
		if err := write(dir); err != nil {
			return err
		}
	}
	return nil
}
