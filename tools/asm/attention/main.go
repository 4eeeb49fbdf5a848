// Command attention writes the assembly of package engine/cpu/attention: the row
// kernels between its matrix products, for AVX-512, AVX2 and NEON.
//
// Run it through go generate in engine/cpu/attention.
package main

import (
	"flag"
	"log"
	"os"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/pass"
	"github.com/mmcloughlin/avo/printer"

	"github.com/snug-ml/snug/tools/asm/arm64"
)

func main() {
	flags := flag.NewFlagSet("attention", flag.ExitOnError)
	file := flags.String("file", "", "which file to write: rows512, rows256 or rows128")
	avo := build.NewFlags(flags)
	if err := flags.Parse(os.Args[1:]); err != nil {
		log.Fatal(err)
	}
	v, ok := map[string]*simd{
		"rows512": newSimd("AVX512", 16),
		"rows256": newSimd("AVX2", 8),
		"rows128": newSimd("NEON", 4),
	}[*file]
	if !ok {
		log.Fatalf("no file named %q", *file)
	}
	if !v.neon() {
		v.ConstraintExpr("amd64")
	}
	v.softmaxRows()
	v.gradRows()
	v.dotRows()
	v.scaleRows()
	v.mulRow()
	v.maskRow()
	if v.neon() {
		value := func(name string) string { return flags.Lookup(name).Value.String() }
		if err := v.translate(value("pkg"), value("out"), value("stubs")); err != nil {
			log.Fatal(err)
		}
		return
	}
	os.Exit(build.Main(avo.Config(), v.Context))
}

// translate writes the code for arm64, and its declarations.
func (v *simd) translate(pkg, assembly, stubs string) error {
	const by = "tools/asm/attention"
	f, err := v.Result()
	if err != nil {
		return err
	}
	if err := pass.Compile.Execute(f); err != nil {
		return err
	}
	text, err := arm64.Translate(f, by)
	if err != nil {
		return err
	}
	declarations, err := printer.NewStubs(printer.Config{Name: by, Pkg: pkg}).Print(f)
	if err != nil {
		return err
	}
	if err := os.WriteFile(assembly, []byte(text), 0o644); err != nil {
		return err
	}
	return os.WriteFile(stubs, declarations, 0o644)
}
