// Command attention writes the amd64 assembly of package engine/cpu/attention:
// the row kernels between its matrix products, for AVX-512 and AVX2.
//
// Run it through go generate in engine/cpu/attention.
package main

import (
	"flag"
	"log"

	"github.com/mmcloughlin/avo/build"
)

func main() {
	file := flag.String("file", "", "which file to write: rows512 or rows256")
	flag.Parse()
	v, ok := map[string]*simd{
		"rows512": {suffix: "AVX512", lanes: 16},
		"rows256": {suffix: "AVX2", lanes: 8},
	}[*file]
	if !ok {
		log.Fatalf("no file named %q", *file)
	}
	build.ConstraintExpr("amd64")
	v.softmaxRows()
	v.gradRows()
	v.dotRows()
	v.scaleRows()
	v.mulRow()
	v.maskRow()
	build.Generate()
}
