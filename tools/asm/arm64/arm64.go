// Package arm64 encodes the vector instructions of arm64 that Go's assembler
// has no names for, and writes functions in its syntax.
package arm64

import (
	"fmt"
	"maps"
	"strings"
)

// A form is how the operands of an instruction are encoded.
type form int

const (
	three     form = iota // d, n, m
	two                   // d, n
	left                  // d, n, #shift: the shift is added to the element's bits
	right                 // d, n, #shift: the shift is taken off twice the element's bits
	byElement             // d, n, m[0]
	fromLane              // d, n[lane]
	toLane                // d[lane], n[0]
	fromWord              // d, w: a general register
	laneWord              // w, n[lane]: a general register is written
	none                  // d
)

// An instruction is one encoding with its name in the manufacturer's syntax, in
// which %d, %n, %m stand for the registers and %i for the number.
type instruction struct {
	bits uint32
	form form
	text string
	size int  // bits of an element, for shifts and lanes
	rmw  bool // the destination is read too
}

// instructions are those of Armv8.0.
var instructions = map[string]instruction{
	"FMLAE": {0x4f801000, byElement, "fmla %d.4s, %n.4s, %m.s[0]", 32, true},
	"MOVI0": {0x6f00e400, none, "movi %d.2d, #0", 0, false},

	"SHLL16": {0x2e613800, two, "shll %d.4s, %n.4h, #16", 0, false},
	"FCVTL":  {0x0e217800, two, "fcvtl %d.4s, %n.4h", 0, false},
	"FCVTL2": {0x4e217800, two, "fcvtl2 %d.4s, %n.8h", 0, false},
	"FCVTN":  {0x0e216800, two, "fcvtn %d.4h, %n.4s", 0, false},
	"FCVTN2": {0x4e216800, two, "fcvtn2 %d.8h, %n.4s", 0, true},
	"SHLL2":  {0x6e613800, two, "shll2 %d.4s, %n.8h, #16", 0, false},

	"USHRS": {0x6f000400, right, "ushr %d.4s, %n.4s, #%i", 32, false},
	"DUPS":  {0x4e000400, fromLane, "dup %d.4s, %n.s[%i]", 32, false},
	"DUPD":  {0x4e000400, fromLane, "dup %d.2d, %n.d[%i]", 64, false},
	"DUPW":  {0x4e040c00, fromWord, "dup %d.4s, w%n", 0, false},
}

func init() {
	arrangements := []struct{ name, text string }{{"S", "4s"}, {"D", "2d"}, {"H", "8h"}, {"B", "16b"}}
	for _, t := range []struct {
		name string
		bits uint32
		of   string // arrangements
		rmw  bool
	}{
		{"FADD", 0x4e20d400, "SD", false}, {"FSUB", 0x4ea0d400, "SD", false}, {"FMUL", 0x6e20dc00, "SD", false}, {"FDIV", 0x6e20fc00, "SD", false},
		{"FMLA", 0x4e20cc00, "S", true}, {"FMLS", 0x4ea0cc00, "S", true},
		{"FCMEQ", 0x4e20e400, "S", false}, {"FCMGE", 0x6e20e400, "S", false}, {"FCMGT", 0x6ea0e400, "S", false},
		{"ADD", 0x4ea08400, "S", false}, {"SUB", 0x6ea08400, "S", false},
		{"CMHI", 0x6ea03400, "S", false},
		{"AND", 0x4e201c00, "B", false}, {"ORR", 0x4ea01c00, "B", false}, {"EOR", 0x6e201c00, "B", false}, {"BIC", 0x4e601c00, "B", false},
		{"BSL", 0x6e601c00, "B", true}, {"BIT", 0x6ea01c00, "B", true},
		{"ZIP1", 0x4e803800, "SDH", false}, {"ZIP2", 0x4e807800, "SDH", false},
		{"UZP1", 0x4e801800, "SH", false}, {"UZP2", 0x4e805800, "SH", false},
		{"TRN1", 0x4e802800, "SDH", false}, {"TRN2", 0x4e806800, "SDH", false},
	} {
		for _, a := range arrangements {
			if !strings.Contains(t.of, a.name) {
				continue
			}
			bits := t.bits
			switch {
			case a.name == "D": // the size field is one more than that of S
				bits += 0x400000
			case a.name == "H":
				bits -= 0x400000
			}
			text := fmt.Sprintf("%s %%d.%[2]s, %%n.%[2]s, %%m.%[2]s", strings.ToLower(t.name), a.text)
			instructions[t.name+a.name] = instruction{bits, three, text, 0, t.rmw}
		}
	}
}

// Instructions returns the names of all instructions.
func Instructions() []string {
	var names []string
	for name := range maps.Keys(instructions) {
		names = append(names, name)
	}
	return names
}

// ReadsDestination reports whether an instruction changes its destination
// rather than replacing it.
func ReadsDestination(name string) bool { return instructions[name].rmw }

// Encode returns an instruction and its text. Operands are the numbers of the
// registers, the destination first, then a lane or a shift.
func Encode(name string, operands ...int) (word uint32, text string) {
	in, ok := instructions[name]
	if !ok {
		panic("arm64: no instruction named " + name)
	}
	want := map[form]int{three: 3, two: 2, left: 3, right: 3, byElement: 3, fromLane: 3, toLane: 3, fromWord: 2, laneWord: 3, none: 1}[in.form]
	if len(operands) != want {
		panic(fmt.Sprintf("arm64: %s has %d operands, not %d", name, want, len(operands)))
	}
	o := [3]int{}
	copy(o[:], operands)
	word = in.bits | uint32(o[0])
	if in.form != none {
		word |= uint32(o[1]) << 5
	}
	switch in.form {
	case three, byElement:
		word |= uint32(o[2]) << 16
	case left:
		word |= uint32(in.size+o[2]) << 16
	case right:
		word |= uint32(2*in.size-o[2]) << 16
	case fromLane, laneWord, toLane:
		word |= uint32(o[2]*in.size/4+in.size/8) << 16
	}
	vector := func(n int) string { return fmt.Sprintf("v%d", n) }
	n := vector(o[1])
	if in.form == fromWord {
		n = fmt.Sprint(o[1])
	}
	d := vector(o[0])
	if in.form == laneWord {
		d = fmt.Sprint(o[0])
	}
	text = strings.NewReplacer("%d", d, "%n", n, "%m", vector(o[2]), "%i", fmt.Sprint(o[2])).Replace(in.text)
	return word, text
}
