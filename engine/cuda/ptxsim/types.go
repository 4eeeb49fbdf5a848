package ptxsim

// typ is a PTX fundamental type, or one of the packed types that instructions name.
type typ uint8

const (
	tNone typ = iota
	tPred
	tB8
	tB16
	tB32
	tB64
	tU8
	tU16
	tU32
	tU64
	tS8
	tS16
	tS32
	tS64
	tF16
	tBF16
	tF32
	tF64
	tF16x2
	tBF16x2
	tTF32
)

var typeNames = map[string]typ{
	"pred": tPred,
	"b8":   tB8, "b16": tB16, "b32": tB32, "b64": tB64,
	"u8": tU8, "u16": tU16, "u32": tU32, "u64": tU64,
	"s8": tS8, "s16": tS16, "s32": tS32, "s64": tS64,
	"f16": tF16, "bf16": tBF16, "f32": tF32, "f64": tF64,
	"f16x2": tF16x2, "bf16x2": tBF16x2, "tf32": tTF32,
}

func (t typ) String() string {
	for n, x := range typeNames {
		if x == t {
			return n
		}
	}
	return "none"
}

// size is the type's size in bytes; a predicate has none.
func (t typ) size() int {
	switch t {
	case tB8, tU8, tS8:
		return 1
	case tB16, tU16, tS16, tF16, tBF16:
		return 2
	case tB32, tU32, tS32, tF32, tF16x2, tBF16x2, tTF32:
		return 4
	case tB64, tU64, tS64, tF64:
		return 8
	}
	return 0
}

func (t typ) signed() bool { return t >= tS8 && t <= tS64 }

func (t typ) float() bool { return t >= tF16 }

func (t typ) integer() bool { return t >= tU8 && t <= tS64 }

// scalar reports whether variables and registers can have the type.
func (t typ) scalar() bool { return t != tNone && t != tTF32 && t != tBF16x2 && t != tBF16 }

// space is a PTX state space.
type space uint8

const (
	generic space = iota
	global
	shared
	local
	param
	constant
)

var spaceNames = map[string]space{
	"global": global, "shared": shared, "shared::cta": shared, "local": local, "param": param, "const": constant,
}

func (s space) String() string {
	return [...]string{"generic", "global", "shared", "local", "param", "const"}[s]
}

// These windows divide the generic address space. Device memory is above all of them; an address below the
// first is in none.
const (
	sharedWindow = 0x1_0000_0000
	localWindow  = 0x2_0000_0000
	windowSize   = 0x1_0000_0000
	deviceBase   = 0x10_0000_0000
)

func roundUp(n, align uint64) uint64 { return (n + align - 1) / align * align }
