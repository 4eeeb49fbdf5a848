package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/pass"
	"github.com/mmcloughlin/avo/reg"

	"github.com/snug-ml/snug/tools/asm/sets"
)

const command = "tools/asm/simd"

// writeAssembly writes a file a group for each port.
func writeAssembly(dir string) error {
	for _, g := range groups {
		for _, p := range sets.Ports {
			text, err := assembly(p, g.kernels)
			if err != nil {
				return fmt.Errorf("%s for %s: %w", g.file, p.Name, err)
			}
			if err := os.WriteFile(filepath.Join(dir, g.file+"_"+p.Name+".s"), text, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// assembly is the text of the kernels for the port's sets, each with the registers that
// its set has.
func assembly(p sets.Port, kernels []kernel) ([]byte, error) {
	f := newFile()
	f.ConstraintExpr("amd64")
	for _, k := range kernels {
		for _, s := range p.Sets {
			if k.column(p, s) == s.Level {
				k.emit(f, s)
			}
		}
	}
	out, err := f.Result()
	if err != nil {
		return nil, err
	}
	if err := pass.Compile.Execute(out); err != nil {
		return nil, err
	}
	if err := checkRegisters(p, out); err != nil {
		return nil, err
	}
	return p.Print(out, command, "simd")
}

// emit adds the kernel's function for one instruction set to the file.
func (k kernel) emit(f *file, s sets.Set) {
	a := newAsm(f, s)
	if k.constants > 0 {
		a.Constants = min(a.Constants, k.constants)
	}
	if a.Constants > 0 {
		// A rehearsal finds the constants to keep in registers.
		rehearsal := newAsm(newFile(), s)
		k.body(rehearsal, s.Level)
		a.hoist = rehearsal.asked[:min(len(rehearsal.asked), a.Constants)]
	}
	k.body(a, s.Level)
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

// checkRegisters refuses functions that need more vector registers than their set has: avo
// gives those of AVX-512.
func checkRegisters(p sets.Port, f *ir.File) error {
	for _, fn := range f.Functions() {
		for _, s := range p.Sets {
			if !strings.HasSuffix(fn.Name, s.Level) {
				continue
			}
			for _, i := range fn.Instructions() {
				for _, r := range i.Registers() {
					if p, ok := r.(reg.Physical); ok && r.Kind() == reg.KindVector && int(p.PhysicalIndex()) >= s.Registers {
						return fmt.Errorf("%s uses %s, which %s lacks", fn.Name, p.Asm(), s.Level)
					}
				}
			}
		}
	}
	return nil
}
