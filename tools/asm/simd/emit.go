package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/pass"
	"github.com/mmcloughlin/avo/printer"
	"github.com/mmcloughlin/avo/reg"

	"github.com/snug-ml/snug/tools/asm/arm64"
)

const command = "tools/asm/simd"

// writeAssembly writes a file for amd64 and one for arm64 a group.
func writeAssembly(dir string) error {
	for _, g := range groups {
		out, err := compile(g.kernels, avx2, avx512)
		if err != nil {
			return fmt.Errorf("%s: %w", g.file, err)
		}
		if err := checkRegisters(out); err != nil {
			return err
		}
		text, err := printer.NewGoAsm(printer.Config{Name: command, Pkg: "simd"}).Print(out)
		if err != nil {
			return fmt.Errorf("%s: %w", g.file, err)
		}
		if err := os.WriteFile(filepath.Join(dir, g.file+"_amd64.s"), text, 0o644); err != nil {
			return err
		}
		if out, err = compile(g.kernels, neon); err != nil {
			return fmt.Errorf("%s for arm64: %w", g.file, err)
		}
		translated, err := arm64.Translate(out, command)
		if err != nil {
			return fmt.Errorf("%s for arm64: %w", g.file, err)
		}
		if err := os.WriteFile(filepath.Join(dir, g.file+"_arm64.s"), []byte(translated), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// compile emits the kernels for the sets, and gives them registers.
func compile(kernels []kernel, sets ...set) (*ir.File, error) {
	f := newFile()
	f.ConstraintExpr("amd64")
	for _, k := range kernels {
		for _, s := range sets {
			k.emit(f, s)
		}
	}
	out, err := f.Result()
	if err != nil {
		return nil, err
	}
	return out, pass.Compile.Execute(out)
}

// emit adds the kernel's function for one instruction set to the file.
func (k kernel) emit(f *file, s set) {
	a := newAsm(f, s)
	if a.wide {
		// A rehearsal finds the constants to keep in registers.
		rehearsal := newAsm(newFile(), s)
		k.body(rehearsal, s.level)
		a.hoist = rehearsal.asked[:min(len(rehearsal.asked), maxHoisted)]
	}
	k.body(a, s.level)
}

func (k kernel) body(a *asm, suffix string) {
	a.Function(k.name + suffix)
	a.SignatureExpr("func(" + k.args + ") " + k.result)
	for _, bits := range a.hoist {
		v := a.vec()
		a.VBROADCASTSS(a.word(bits), v)
		a.consts[bits] = v
	}
	a.loadScalars(k)
	k.code(a)
}

// checkRegisters refuses AVX2 functions that need more than 16 vector
// registers: the rest exists in AVX-512 only.
func checkRegisters(f *ir.File) error {
	for _, fn := range f.Functions() {
		if !strings.HasSuffix(fn.Name, "AVX2") {
			continue
		}
		for _, i := range fn.Instructions() {
			for _, r := range i.Registers() {
				if p, ok := r.(reg.Physical); ok && r.Kind() == reg.KindVector && p.PhysicalIndex() >= 16 {
					return fmt.Errorf("%s uses %s, which AVX2 lacks", fn.Name, p.Asm())
				}
			}
		}
	}
	return nil
}
