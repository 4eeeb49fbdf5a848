package monitor

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/bits"
	"strconv"

	"github.com/snug-ml/snug/train"
	"github.com/snug-ml/snug/train/checkpoint"
)

// lineScanner reads lines of updates as a run writes them, some twenty times as fast as
// encoding/json. It gives up on anything unusual (white space, escapes, unknown or
// repeated keys, null), which encoding/json then reads, so that both always agree.
type lineScanner struct {
	line  train.Line
	since train.Since
	loss  checkpoint.Float
	rate  checkpoint.Float
	norm  checkpoint.Float
	text  []byte // the rest of the line
}

// scan reads a line of an update; ok is false if encoding/json must. The result is valid
// until the next scan.
func (s *lineScanner) scan(raw []byte) (l *train.Line, ok bool) {
	s.line, s.since, s.text = train.Line{}, train.Since{}, raw
	if !s.object(s.field) || len(s.text) > 0 || s.line.Event != "update" {
		return nil, false
	}
	return &s.line, true
}

// object reads an object. field reads the value of a key and returns the key's bit, or 0
// if it cannot: no key may occur twice.
func (s *lineScanner) object(field func(key []byte) (bit uint)) bool {
	if !s.skip('{') {
		return false
	}
	var seen uint
	for {
		key, ok := s.word()
		if !ok || !s.skip(':') {
			return false
		}
		bit := field(key)
		if bit == 0 || seen&bit != 0 {
			return false
		}
		seen |= bit
		if s.skip('}') {
			return true
		}
		if !s.skip(',') {
			return false
		}
	}
}

func (s *lineScanner) field(key []byte) uint {
	l := &s.line
	switch string(key) {
	case "event":
		word, ok := s.word()
		if !ok || string(word) != "update" {
			return 0
		}
		l.Event = "update"
		return 1 << 0
	case "update":
		return s.whole(&l.Update, 1<<1)
	case "loss":
		l.Loss = &s.loss
		return s.float(&s.loss, 1<<2)
	case "learning_rate":
		l.LR = &s.rate
		return s.float(&s.rate, 1<<3)
	case "grad_norm":
		l.GradNorm = &s.norm
		return s.float(&s.norm, 1<<4)
	case "loss_scale":
		return s.number(&l.Scale, 1<<5)
	case "skipped":
		var ok bool
		if s.text, ok = bytes.CutPrefix(s.text, []byte("true")); !ok {
			return 0
		}
		l.Skipped = true
		return 1 << 6
	case "tokens":
		return s.whole(&l.Tokens, 1<<7)
	case "loss_z":
		return s.float(&l.LossZ, 1<<8)
	case "grad_norm_z":
		return s.float(&l.NormZ, 1<<9)
	case "seconds":
		return s.number(&l.Seconds, 1<<10)
	case "rate":
		return s.number(&l.Rate, 1<<11)
	case "wait_seconds":
		return s.number(&l.Wait, 1<<12)
	case "time":
		return s.number(&l.Time, 1<<13)
	case "since":
		l.Since = &s.since
		if s.object(s.sinceField) {
			return 1 << 14
		}
	}
	return 0
}

func (s *lineScanner) sinceField(key []byte) uint {
	switch string(key) {
	case "updates":
		return s.whole(&s.since.Updates, 1<<0)
	case "seconds":
		return s.number(&s.since.Seconds, 1<<1)
	case "wait_seconds":
		return s.number(&s.since.Wait, 1<<2)
	case "save_seconds":
		return s.number(&s.since.Save, 1<<3)
	case "evaluation_seconds":
		return s.number(&s.since.Evaluation, 1<<4)
	case "tokens":
		return s.whole(&s.since.Tokens, 1<<5)
	case "flops":
		return s.number(&s.since.FLOPs, 1<<6)
	case "exchange_seconds":
		return s.number(&s.since.Exchange, 1<<7)
	case "exchange_hidden_seconds":
		return s.number(&s.since.Hidden, 1<<8)
	}
	return 0
}

func (s *lineScanner) skip(c byte) bool {
	if len(s.text) == 0 || s.text[0] != c {
		return false
	}
	s.text = s.text[1:]
	return true
}

// word reads a string without escapes. Callers compare it with names: its other contents
// do not matter.
func (s *lineScanner) word() ([]byte, bool) {
	if !s.skip('"') {
		return nil, false
	}
	end := bytes.IndexByte(s.text, '"')
	if end < 0 {
		return nil, false
	}
	word := s.text[:end]
	s.text = s.text[end+1:]
	return word, true
}

// float reads a number, or the text of a checkpoint.Float that is not finite.
func (s *lineScanner) float(to *checkpoint.Float, bit uint) uint {
	if len(s.text) > 0 && s.text[0] == '"' {
		word, ok := s.word()
		if !ok {
			return 0
		}
		switch string(word) {
		case "NaN":
			*to = checkpoint.Float(math.NaN())
		case "+Inf":
			*to = checkpoint.Float(math.Inf(1))
		case "-Inf":
			*to = checkpoint.Float(math.Inf(-1))
		default:
			return 0
		}
		return bit
	}
	return s.number((*float64)(to), bit)
}

// number reads a JSON number. One of few digits and a small power of ten is exact in
// one or two operations; strconv reads the others.
func (s *lineScanner) number(to *float64, bit uint) uint {
	d := s.decimal()
	if d.length == 0 {
		return 0
	}
	text := s.text[:d.length]
	s.text = s.text[d.length:]
	x, ok := d.float()
	if !ok {
		var err error
		if x, err = strconv.ParseFloat(string(text), 64); err != nil {
			return 0
		}
	}
	if text[0] == '-' && ok {
		x = -x
	}
	*to = x
	return bit
}

// float returns the number that the decimal stands for, without its sign, correctly
// rounded; ok is false if strconv must decide.
func (d *decimal) float() (x float64, ok bool) {
	switch {
	case d.digits <= 15 && d.power >= 0 && d.power < len(powers):
		return float64(d.mantissa) * powers[d.power], true
	case d.digits <= 15 && d.power < 0 && -d.power < len(powers):
		return float64(d.mantissa) / powers[-d.power], true
	case d.digits <= 18 && d.power < 0 && -d.power < len(fives):
		return quotient(d.mantissa, fives[-d.power], d.power), true
	}
	return 0, false
}

// quotient returns m divided by f, a power of 5, times 2 to the power, correctly rounded
// from 64 bits of the quotient and whether there is a remainder.
func quotient(m, f uint64, power int) float64 {
	shift := bits.LeadingZeros64(f) - bits.LeadingZeros64(m)
	m <<= bits.LeadingZeros64(m)
	f <<= bits.LeadingZeros64(f)
	high, low := m, uint64(0)
	if high >= f {
		high, low, shift = m>>1, m<<63, shift+1
	}
	q, rest := bits.Div64(high, low, f) // 2^63 or more
	const drop = 64 - 53
	even, half := q>>drop, q&(1<<drop-1)
	if half > 1<<(drop-1) || half == 1<<(drop-1) && (rest > 0 || even&1 == 1) {
		even++ // 2^53 at most: still exact
	}
	return float64(even) * math.Float64frombits(uint64(1023+shift+power-53)<<52)
}

// powers of ten that are exact, and powers of five that have 64 bits.
var (
	powers = [...]float64{
		1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
	}
	fives = func() (p [28]uint64) {
		p[0] = 1
		for i := 1; i < len(p); i++ {
			p[i] = 5 * p[i-1]
		}
		return p
	}()
)

// whole reads a whole number.
func (s *lineScanner) whole(to *int64, bit uint) uint {
	d := s.decimal()
	if d.length == 0 || d.digits > 18 || !d.integer {
		return 0
	}
	*to = int64(d.mantissa)
	if s.text[0] == '-' {
		*to = -*to
	}
	s.text = s.text[d.length:]
	return bit
}

// decimal is a number as written: mantissa times ten to the power, without the sign. The
// mantissa is correct for up to 18 digits.
type decimal struct {
	mantissa      uint64
	digits, power int
	integer       bool // it has neither fraction nor exponent
	length        int  // in bytes; 0: it is not a number
}

// decimal parses the number at the beginning of the text, by JSON's grammar.
func (s *lineScanner) decimal() (d decimal) {
	t, i := s.text, 0
	if i < len(t) && t[i] == '-' {
		i++
	}
	first := i
	i = d.digitsAt(t, i)
	if d.digits = i - first; d.digits == 0 || d.digits > 1 && t[first] == '0' {
		return decimal{}
	}
	d.integer = true
	if i < len(t) && t[i] == '.' {
		i++
		point := i
		i = d.digitsAt(t, i)
		n := i - point
		if n == 0 {
			return decimal{}
		}
		d.power, d.integer = -n, false
		if d.digits += n; t[first] == '0' { // leading zeros do not count as digits
			for first++; first < i && (t[first] == '0' || t[first] == '.'); first++ {
				if t[first] == '0' {
					d.digits--
				}
			}
			d.digits--
		}
	}
	if i < len(t) && (t[i] == 'e' || t[i] == 'E') {
		d.integer = false
		if i = d.exponent(t, i+1); i < 0 {
			return decimal{}
		}
	}
	d.length = i
	return d
}

// digitsAt adds the digits at i of the text to the mantissa, eight at a time while there
// are as many, and returns their end.
func (d *decimal) digitsAt(t []byte, i int) int {
	const (
		zeros = 0x3030303030303030
		high  = 0xf0f0f0f0f0f0f0f0
		sixes = 0x0606060606060606
	)
	for i+8 <= len(t) {
		x := binary.LittleEndian.Uint64(t[i:])
		if x&high != zeros || (x+sixes)&high != zeros {
			break // not all of them are digits
		}
		// Neighbors become numbers of two digits, then of four, then of eight.
		x = (x & 0x0f0f0f0f0f0f0f0f) * (10<<8 + 1) >> 8
		x = (x & 0x00ff00ff00ff00ff) * (100<<16 + 1) >> 16
		x = (x & 0x0000ffff0000ffff) * (10000<<32 + 1) >> 32
		d.mantissa = 1e8*d.mantissa + x
		i += 8
	}
	for i < len(t) && '0' <= t[i] && t[i] <= '9' {
		d.mantissa = 10*d.mantissa + uint64(t[i]-'0')
		i++
	}
	return i
}

// exponent reads the exponent at i of the text and returns its end, -1 if there is none.
func (d *decimal) exponent(t []byte, i int) int {
	minus := i < len(t) && t[i] == '-'
	if minus || i < len(t) && t[i] == '+' {
		i++
	}
	first, power := i, 0
	for ; i < len(t) && '0' <= t[i] && t[i] <= '9'; i++ {
		power = min(10*power+int(t[i]-'0'), 1<<20)
	}
	if i == first {
		return -1
	}
	if minus {
		power = -power
	}
	d.power += power
	return i
}
