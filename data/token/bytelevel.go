package token

// Byte-level tokenizers spell each byte as one printable character (GPT-2, Radford et al. 2019,
// encoder.py: bytes_to_unicode): the printable characters of Latin-1 represent themselves, the
// other 68 bytes take the characters from U+0100 on.
var (
	byteRune [256]rune
	runeByte [324]int16 // -1: the character spells no byte
)

func init() {
	for i := range runeByte {
		runeByte[i] = -1
	}
	next := rune(256)
	for b := range 256 {
		r := rune(b)
		if b < '!' || b > '~' && b < 0xA1 || b == 0xAD {
			r = next
			next++
		}
		byteRune[b] = r
		runeByte[r] = int16(b)
	}
}

// unspellBytes appends the bytes that the characters of s represent. It is false, and appends
// nothing, if one represents no byte.
func unspellBytes(dst []byte, s string) ([]byte, bool) {
	n := len(dst)
	for _, r := range s {
		if int(r) >= len(runeByte) || runeByte[r] < 0 {
			return dst[:n], false
		}
		dst = append(dst, byte(runeByte[r]))
	}
	return dst, true
}
