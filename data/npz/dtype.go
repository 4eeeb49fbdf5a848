package npz

import "fmt"

// DType is the type of an array's elements.
type DType int

// The types. On disk they are little- or big-endian; here they are native.
const (
	Bool DType = iota
	Uint8
	Int32
	Int64
	Float16 // as uint16 bits, IEEE 754 binary16
	Float32
	Float64
)

// dtypes names each type as in a header, without the byte order.
var dtypes = [...]struct {
	code string
	size int
}{
	Bool: {"b1", 1}, Uint8: {"u1", 1}, Int32: {"i4", 4}, Int64: {"i8", 8},
	Float16: {"f2", 2}, Float32: {"f4", 4}, Float64: {"f8", 8},
}

// Size is the size of an element in bytes.
func (d DType) Size() int { return dtypes[d].size }

// String is the type's code in a header, such as "i4".
func (d DType) String() string { return dtypes[d].code }

// parseDType reads a descr such as "<i4".
func parseDType(descr string) (d DType, bigEndian bool, err error) {
	if len(descr) == 3 {
		for d := range dtypes {
			if dtypes[d].code != descr[1:] {
				continue
			}
			switch order := descr[0]; {
			case order == '<', order == '|' && dtypes[d].size == 1:
				return DType(d), false, nil
			case order == '>':
				return DType(d), true, nil
			}
		}
	}
	if descr == "|O" {
		return 0, false, fmt.Errorf("holds pickled Python objects, which run code when they are read; save plain numbers instead")
	}
	return 0, false, fmt.Errorf("type %q is not one of b1 u1 i4 i8 f2 f4 f8", descr)
}
