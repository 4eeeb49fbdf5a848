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
	fromWord              // d, w: a general register
	laneWord              // w, n[lane]: a general register is written
	lookup                // d, { n, n+1 }, m
	none                  // d
)

// An instruction is one encoding with its name in the manufacturer's syntax, in
// which %d, %n, %m stand for the registers and %i for the number.
type instruction struct {
	bits uint32
	form form
	text string
	size int // bits of an element, for shifts and lanes
}

// instructions are those of Armv8.0 and, beginning with BF, those of FEAT_BF16.
var instructions = map[string]instruction{
	"FMLAE":   {0x4f801000, byElement, "fmla %d.4s, %n.4s, %m.s[0]", 32},
	"BFDOTE":  {0x4f40f000, byElement, "bfdot %d.4s, %n.8h, %m.2h[0]", 32},
	"BFMMLA":  {0x6e40ec00, three, "bfmmla %d.4s, %n.8h, %m.8h", 0},
	"BFCVTN":  {0x0ea16800, two, "bfcvtn %d.4h, %n.4s", 0},
	"BFCVTN2": {0x4ea16800, two, "bfcvtn2 %d.8h, %n.4s", 0},

	"MOVI0": {0x6f00e400, none, "movi %d.2d, #0", 0},

	"FCMGT0S": {0x4ea0c800, two, "fcmgt %d.4s, %n.4s, #0.0", 0},
	"FCMGE0S": {0x6ea0c800, two, "fcmge %d.4s, %n.4s, #0.0", 0},
	"FCMEQ0S": {0x4ea0d800, two, "fcmeq %d.4s, %n.4s, #0.0", 0},
	"FCMLE0S": {0x6ea0d800, two, "fcmle %d.4s, %n.4s, #0.0", 0},
	"FCMLT0S": {0x4ea0e800, two, "fcmlt %d.4s, %n.4s, #0.0", 0},
	"CMLT0S":  {0x4ea0a800, two, "cmlt %d.4s, %n.4s, #0", 0},

	"ADDHN":  {0x0e604000, three, "addhn %d.4h, %n.4s, %m.4s", 0},
	"SHRN16": {0x0f108400, two, "shrn %d.4h, %n.4s, #16", 0},
	"USRA31": {0x6f211400, two, "usra %d.4s, %n.4s, #31", 0},
	"TBL2":   {0x4e002000, lookup, "tbl %d.16b, { %n.16b, %1.16b }, %m.16b", 0},

	"SHLL16": {0x2e613800, two, "shll %d.4s, %n.4h, #16", 0},
	"FCVTL":  {0x0e217800, two, "fcvtl %d.4s, %n.4h", 0},
	"FCVTL2": {0x4e217800, two, "fcvtl2 %d.4s, %n.8h", 0},
	"FCVTN":  {0x0e216800, two, "fcvtn %d.4h, %n.4s", 0},
	"FCVTN2": {0x4e216800, two, "fcvtn2 %d.8h, %n.4s", 0},
	"SHLL2":  {0x6e613800, two, "shll2 %d.4s, %n.8h, #16", 0},

	"FCVTLD": {0x0e617800, two, "fcvtl %d.2d, %n.2s", 0},
	"USHLLH": {0x2f10a400, two, "ushll %d.4s, %n.4h, #0", 0},
	"USHLLB": {0x2f08a400, two, "ushll %d.8h, %n.8b, #0", 0},
	"XTND":   {0x0ea12800, two, "xtn %d.2s, %n.2d", 0},
	"UMULLD": {0x2ea0c000, three, "umull %d.2d, %n.2s, %m.2s", 0},

	"FSQRTS":  {0x6ea1f800, two, "fsqrt %d.4s, %n.4s", 0},
	"FNEGS":   {0x6ea0f800, two, "fneg %d.4s, %n.4s", 0},
	"FRINTNS": {0x4e218800, two, "frintn %d.4s, %n.4s", 0},
	"SCVTFS":  {0x4e21d800, two, "scvtf %d.4s, %n.4s", 0},
	"FCVTNSS": {0x4e21a800, two, "fcvtns %d.4s, %n.4s", 0},
	"NOTB":    {0x6e205800, two, "mvn %d.16b, %n.16b", 0},
	"REV64S":  {0x4ea00800, two, "rev64 %d.4s, %n.4s", 0},
	"ADDVS":   {0x4eb1b800, two, "addv %d.scalar, %n.4s", 0},
	"UMAXVS":  {0x6eb0a800, two, "umaxv %d.scalar, %n.4s", 0},
	"EXT8":    {0x6e004000, three, "ext %d.16b, %n.16b, %m.16b, #8", 0},

	"SHLS":  {0x4f005400, left, "shl %d.4s, %n.4s, #%i", 32},
	"SHLD":  {0x4f005400, left, "shl %d.2d, %n.2d, #%i", 64},
	"USHRD": {0x6f000400, right, "ushr %d.2d, %n.2d, #%i", 64},
	"SSHRS": {0x4f000400, right, "sshr %d.4s, %n.4s, #%i", 32},
	"UMOVS": {0x0e003c00, laneWord, "umov w%d, %n.s[%i]", 32},

	"USHRS": {0x6f000400, right, "ushr %d.4s, %n.4s, #%i", 32},
	"DUPS":  {0x4e000400, fromLane, "dup %d.4s, %n.s[%i]", 32},
	"DUPD":  {0x4e000400, fromLane, "dup %d.2d, %n.d[%i]", 64},
	"DUPW":  {0x4e040c00, fromWord, "dup %d.4s, w%n", 0},
}

func init() {
	arrangements := []struct{ name, text string }{{"S", "4s"}, {"D", "2d"}, {"H", "8h"}, {"B", "16b"}}
	for _, t := range []struct {
		name string
		bits uint32
		of   string // arrangements
	}{
		{"FADD", 0x4e20d400, "SD"}, {"FSUB", 0x4ea0d400, "SD"}, {"FMUL", 0x6e20dc00, "SD"}, {"FDIV", 0x6e20fc00, "SD"},
		{"FMLA", 0x4e20cc00, "S"}, {"FMLS", 0x4ea0cc00, "S"}, {"FMAX", 0x4e20f400, "S"}, {"FMIN", 0x4ea0f400, "S"},
		{"FCMEQ", 0x4e20e400, "S"}, {"FCMGE", 0x6e20e400, "S"}, {"FCMGT", 0x6ea0e400, "S"},
		{"ADD", 0x4ea08400, "SD"}, {"SUB", 0x6ea08400, "S"}, {"MLA", 0x4ea09400, "S"},
		{"SMAX", 0x4ea06400, "S"}, {"SMIN", 0x4ea06c00, "S"}, {"CMEQ", 0x6ea08c00, "S"},
		{"CMHI", 0x6ea03400, "S"},
		{"AND", 0x4e201c00, "B"}, {"ORR", 0x4ea01c00, "B"}, {"EOR", 0x6e201c00, "B"}, {"BIC", 0x4e601c00, "B"},
		{"BSL", 0x6e601c00, "B"}, {"BIT", 0x6ea01c00, "B"}, {"BIF", 0x6ee01c00, "B"},
		{"ZIP1", 0x4e803800, "SDH"}, {"ZIP2", 0x4e807800, "SDH"},
		{"UZP1", 0x4e801800, "SHB"}, {"UZP2", 0x4e805800, "SH"},
		{"TRN1", 0x4e802800, "SDH"}, {"TRN2", 0x4e806800, "SDH"},
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
			case a.name == "B" && t.bits&0x00e00000 == 0x800000 && strings.HasPrefix(t.name, "UZP"):
				bits -= 0x800000
			}
			text := fmt.Sprintf("%s %%d.%[2]s, %%n.%[2]s, %%m.%[2]s", strings.ToLower(t.name), a.text)
			instructions[t.name+a.name] = instruction{bits, three, text, 0}
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

// Encode returns an instruction and its text. Operands are the numbers of the
// registers, the destination first, then a lane or a shift.
func Encode(name string, operands ...int) (word uint32, text string) {
	in, ok := instructions[name]
	if !ok {
		panic("arm64: no instruction named " + name)
	}
	want := map[form]int{three: 3, lookup: 3, two: 2, left: 3, right: 3, byElement: 3, fromLane: 3, fromWord: 2, laneWord: 3, none: 1}[in.form]
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
	case three, lookup, byElement:
		word |= uint32(o[2]) << 16
	case left:
		word |= uint32(in.size+o[2]) << 16
	case right:
		word |= uint32(2*in.size-o[2]) << 16
	case fromLane, laneWord:
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
	text = strings.NewReplacer("%d.scalar", fmt.Sprintf("s%d", o[0]), "%d", d, "%n", n, "%1", vector((o[1]+1)%32), "%m", vector(o[2]), "%i", fmt.Sprint(o[2])).Replace(in.text)
	return word, text
}
