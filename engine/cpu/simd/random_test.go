package simd

import (
	"math"
	"testing"
)

// The known answers are those published with the Random123 library
// (kat_vectors, philox4x32 with 10 rounds).
func TestPhiloxKnownAnswers(t *testing.T) {
	for _, c := range []struct {
		counter [4]uint32
		key     [2]uint32
		want    [4]uint32
	}{
		{[4]uint32{}, [2]uint32{}, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{
			[4]uint32{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
			[2]uint32{0xffffffff, 0xffffffff},
			[4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
		},
		{
			[4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
			[2]uint32{0xa4093822, 0x299f31d0},
			[4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1},
		},
	} {
		if got := philox4x32(c.counter, c.key); got != c.want {
			t.Errorf("philox4x32(%x, %x) = %x, want %x", c.counter, c.key, got, c.want)
		}
		seed := uint64(c.key[0]) | uint64(c.key[1])<<32
		stream := uint64(c.counter[2]) | uint64(c.counter[3])<<32
		block := uint64(c.counter[0]) | uint64(c.counter[1])<<32
		if block > math.MaxUint64/4 {
			continue // not reachable: element numbers are 64-bit
		}
		eachLevel(t, func(t *testing.T) {
			var got [4]uint32
			Philox(got[:], seed, stream, 4*block)
			if got != c.want {
				t.Errorf("Philox(%x, %x, %x) = %x, want %x", seed, stream, 4*block, got, c.want)
			}
		})
	}
}
