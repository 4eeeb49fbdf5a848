// Command gemm writes the amd64 assembly of package engine/cpu/gemm: the
// multiply kernels and the packing kernels for AVX-512 and AVX2.
//
// Run it through go generate in engine/cpu/gemm.
package main

import (
	"flag"
	"log"

	"github.com/mmcloughlin/avo/build"
)

var files = map[string]func(){
	"kernel512": func() {
		for mr := 1; mr <= 12; mr++ {
			kernel512(mr, false)
		}
		for mr := 1; mr <= 12; mr++ {
			kernel512(mr, true)
		}
	},
	"pack512": pack512,
	"kernel256": func() {
		for mr := 1; mr <= 6; mr++ {
			kernel256(mr)
		}
	},
	"pack256": pack256,
}

func main() {
	file := flag.String("file", "", "which file to write")
	flag.Parse()
	emit, ok := files[*file]
	if !ok {
		log.Fatalf("no file named %q", *file)
	}
	build.ConstraintExpr("amd64")
	emit()
	build.Generate()
}
