// Command gemm writes the assembly of package engine/cpu/gemm: the multiply
// kernels and the packing kernels for AVX-512, AVX2 and NEON.
//
// Run it through go generate in engine/cpu/gemm.
package main

import (
	"flag"
	"log"

	"github.com/mmcloughlin/avo/build"

	"github.com/snug-ml/snug/tools/asm/arm64"
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

// armFiles are those of arm64.
var armFiles = map[string]func(w *arm64.Writer){
	"kernel128": func(w *arm64.Writer) {
		for mr := 1; mr <= neonRows; mr++ {
			kernel128(w, mr, false)
		}
		for mr := 1; mr <= neonRows; mr++ {
			kernel128(w, mr, true)
		}
		for mr := 1; mr <= neonRows; mr++ {
			quads128(w, mr, false)
		}
		for mr := 1; mr <= neonRows; mr++ {
			quads128(w, mr, true)
		}
	},
	"pack128": pack128,
}

func main() {
	file := flag.String("file", "", "which file to write")
	flag.Parse()
	if emit, ok := armFiles[*file]; ok {
		flags := map[string]string{}
		flag.Visit(func(f *flag.Flag) { flags[f.Name] = f.Value.String() })
		w := arm64.NewWriter("tools/asm/gemm", flags["pkg"])
		emit(w)
		if err := w.Save(flags["out"], flags["stubs"]); err != nil {
			log.Fatal(err)
		}
		return
	}
	emit, ok := files[*file]
	if !ok {
		log.Fatalf("no file named %q", *file)
	}
	build.ConstraintExpr("amd64")
	emit()
	build.Generate()
}
