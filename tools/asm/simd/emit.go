package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/pass"
	"github.com/mmcloughlin/avo/reg"
)

const command = "tools/asm/simd"

// writeAssembly writes a file a group for each port.
func writeAssembly(dir string) error {
	for _, g := range groups {
		for _, p := range ports {
			text, err := p.assembly(g.kernels)
			if err != nil {
				return fmt.Errorf("%s for %s: %w", g.file, p.name, err)
			}
			if err := os.WriteFile(filepath.Join(dir, g.file+"_"+p.name+".s"), text, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// assembly is the text of the kernels for the port's sets.
func (p port) assembly(kernels []kernel) ([]byte, error) {
	out, err := compile(kernels, p.sets...)
	if err != nil {
		return nil, err
	}
	if err := checkRegisters(out); err != nil {
		return nil, err
	}
	return p.print(out)
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
