package pytorch

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"unicode/utf8"

	"github.com/snug-ml/snug/internal/few"
)

const (
	// MaxPickle bounds the pickle of a file: it has some 150 bytes per tensor.
	MaxPickle = 64 << 20
	// maxObjects bounds the objects that a pickle makes: a tensor takes about ten.
	maxObjects = 1 << 21
	// maxStack bounds the height of its stack: dictionaries are filled by 1000 items.
	maxStack = 1 << 16
)

// unpickler is a stack machine that turns a pickle into plain data.
type unpickler struct {
	text []byte
	pos  int // of the next byte
	// persistent makes a storage from its id.
	persistent func(id tuple) (any, error)

	stack   []any
	marks   []int // heights of the stack
	memo    map[uint32]any
	objects int
}

// opcodes of protocols 2 to 5 that torch.save writes, and what they do.
var opcodes = map[byte]struct {
	name string
	run  func(u *unpickler) error
}{
	0x80: {"PROTO", (*unpickler).protocol},
	0x95: {"FRAME", func(u *unpickler) error { _, err := u.take(8); return err }},
	'(':  {"MARK", (*unpickler).mark},
	'0':  {"POP", func(u *unpickler) error { _, err := u.pop(); return err }},
	'1':  {"POP_MARK", func(u *unpickler) error { _, err := u.popMark(); return err }},
	'N':  {"NONE", func(u *unpickler) error { return u.push(nil) }},
	0x88: {"NEWTRUE", func(u *unpickler) error { return u.push(true) }},
	0x89: {"NEWFALSE", func(u *unpickler) error { return u.push(false) }},
	'J':  {"BININT", func(u *unpickler) error { return u.integer(4) }},
	'K':  {"BININT1", func(u *unpickler) error { return u.integer(1) }},
	'M':  {"BININT2", func(u *unpickler) error { return u.integer(2) }},
	0x8a: {"LONG1", (*unpickler).long},
	'G':  {"BINFLOAT", (*unpickler).float},
	'X':  {"BINUNICODE", func(u *unpickler) error { return u.text8(4) }},
	0x8c: {"SHORT_BINUNICODE", func(u *unpickler) error { return u.text8(1) }},
	0x8d: {"BINUNICODE8", func(u *unpickler) error { return u.text8(8) }},
	'T':  {"BINSTRING", func(u *unpickler) error { return u.text8(4) }},
	'U':  {"SHORT_BINSTRING", func(u *unpickler) error { return u.text8(1) }},
	')':  {"EMPTY_TUPLE", func(u *unpickler) error { return u.make(tuple{}) }},
	0x85: {"TUPLE1", func(u *unpickler) error { return u.tupleOf(1) }},
	0x86: {"TUPLE2", func(u *unpickler) error { return u.tupleOf(2) }},
	0x87: {"TUPLE3", func(u *unpickler) error { return u.tupleOf(3) }},
	't':  {"TUPLE", (*unpickler).tupleOfMark},
	']':  {"EMPTY_LIST", func(u *unpickler) error { return u.make(&list{}) }},
	'a':  {"APPEND", (*unpickler).appendOne},
	'e':  {"APPENDS", (*unpickler).appendMark},
	'}':  {"EMPTY_DICT", func(u *unpickler) error { return u.make(&dict{}) }},
	's':  {"SETITEM", (*unpickler).setOne},
	'u':  {"SETITEMS", (*unpickler).setMark},
	'q':  {"BINPUT", func(u *unpickler) error { return u.put(1) }},
	'r':  {"LONG_BINPUT", func(u *unpickler) error { return u.put(4) }},
	0x94: {"MEMOIZE", func(u *unpickler) error { return u.remember(uint32(len(u.memo))) }},
	'h':  {"BINGET", func(u *unpickler) error { return u.get(1) }},
	'j':  {"LONG_BINGET", func(u *unpickler) error { return u.get(4) }},
	'c':  {"GLOBAL", (*unpickler).global},
	0x93: {"STACK_GLOBAL", (*unpickler).stackGlobal},
	'Q':  {"BINPERSID", (*unpickler).persistentID},
	'R':  {"REDUCE", (*unpickler).reduce},
	'b':  {"BUILD", (*unpickler).build},
}

const opStop = '.'

// unpickle runs a pickle to its end.
func unpickle(text []byte, persistent func(id tuple) (any, error)) (any, error) {
	u := &unpickler{text: text, persistent: persistent, memo: map[uint32]any{}}
	for {
		at := u.pos
		op, err := u.take(1)
		if err != nil {
			return nil, fmt.Errorf("byte %d: %w", at, err)
		}
		if op[0] == opStop {
			v, err := u.stop()
			if err != nil {
				return nil, fmt.Errorf("byte %d (STOP): %w", at, err)
			}
			return v, nil
		}
		o, ok := opcodes[op[0]]
		if !ok {
			return nil, fmt.Errorf("byte %d: opcode %#02x has no place in a file of tensors; nothing of it was executed. If you trust the file, save its tensors alone: torch.save(model.state_dict(), FILE)", at, op[0])
		}
		if err := o.run(u); err != nil {
			return nil, fmt.Errorf("byte %d (%s): %w", at, o.name, err)
		}
	}
}

func (u *unpickler) stop() (any, error) {
	v, err := u.pop()
	switch {
	case err != nil:
		return nil, err
	case len(u.stack)+len(u.marks) > 0:
		return nil, fmt.Errorf("%d values are left over: the pickle is damaged", len(u.stack))
	case u.pos != len(u.text):
		return nil, fmt.Errorf("%d bytes follow the end: the pickle is damaged", len(u.text)-u.pos)
	}
	return v, nil
}

// take returns the next n bytes.
func (u *unpickler) take(n uint64) ([]byte, error) {
	if left := uint64(len(u.text) - u.pos); n > left {
		return nil, fmt.Errorf("the pickle ends here, %d bytes too early: fetch the file again", n-left)
	}
	b := u.text[u.pos : u.pos+int(n)]
	u.pos += int(n)
	return b, nil
}

// number reads an unsigned number of 1, 2, 4 or 8 bytes.
func (u *unpickler) number(width int) (uint64, error) {
	b, err := u.take(uint64(width))
	if err != nil {
		return 0, err
	}
	var all [8]byte
	copy(all[:], b)
	return binary.LittleEndian.Uint64(all[:]), nil
}

func (u *unpickler) push(v any) error {
	if len(u.stack) == maxStack {
		return fmt.Errorf("more than %d values wait on the stack: no file of tensors does that", maxStack)
	}
	u.stack = append(u.stack, v)
	return nil
}

// make pushes a new object.
func (u *unpickler) make(v any) error {
	if u.objects++; u.objects > maxObjects {
		return fmt.Errorf("more than %d objects: no file of tensors has so many", maxObjects)
	}
	return u.push(v)
}

// floor returns the height below which pop does not go.
func (u *unpickler) floor() int {
	if n := len(u.marks); n > 0 {
		return u.marks[n-1]
	}
	return 0
}

func (u *unpickler) pop() (any, error) {
	n := len(u.stack) - 1
	if n < u.floor() {
		return nil, fmt.Errorf("the stack is empty: the pickle is damaged")
	}
	v := u.stack[n]
	u.stack[n] = nil
	u.stack = u.stack[:n]
	return v, nil
}

// top returns the value that pop would return.
func (u *unpickler) top() (any, error) {
	n := len(u.stack) - 1
	if n < u.floor() {
		return nil, fmt.Errorf("the stack is empty: the pickle is damaged")
	}
	return u.stack[n], nil
}

func (u *unpickler) mark() error {
	if len(u.marks) == maxStack {
		return fmt.Errorf("more than %d marks: no file of tensors has so many", maxStack)
	}
	u.marks = append(u.marks, len(u.stack))
	return nil
}

// popMark returns a copy of the values above the last mark, and removes both.
func (u *unpickler) popMark() ([]any, error) {
	n := len(u.marks) - 1
	if n < 0 {
		return nil, fmt.Errorf("no mark is set: the pickle is damaged")
	}
	at := u.marks[n]
	u.marks = u.marks[:n]
	items := append([]any(nil), u.stack[at:]...)
	clear(u.stack[at:])
	u.stack = u.stack[:at]
	return items, nil
}

func (u *unpickler) protocol() error {
	n, err := u.number(1)
	if err == nil && (n < 2 || n > 5) {
		err = fmt.Errorf("protocol %d is not read: 2 to 5 are", n)
	}
	return err
}

func (u *unpickler) integer(width int) error {
	n, err := u.number(width)
	if err != nil {
		return err
	}
	if width == 4 {
		return u.push(int64(int32(uint32(n))))
	}
	return u.push(int64(n))
}

func (u *unpickler) long() error {
	n, err := u.number(1)
	if err != nil {
		return err
	}
	b, err := u.take(n)
	if err != nil {
		return err
	}
	if len(b) > 8 {
		return fmt.Errorf("an integer of %d bytes: a tensor's sizes have 8", len(b))
	}
	var v uint64
	for i, x := range b {
		v |= uint64(x) << (8 * i)
	}
	if len(b) == 0 {
		return u.push(int64(0))
	}
	shift := 64 - 8*len(b)
	return u.push(int64(v<<shift) >> shift)
}

func (u *unpickler) float() error {
	b, err := u.take(8)
	if err != nil {
		return err
	}
	return u.push(math.Float64frombits(binary.BigEndian.Uint64(b)))
}

// text8 pushes a string whose length has width bytes.
func (u *unpickler) text8(width int) error {
	n, err := u.number(width)
	if err != nil {
		return err
	}
	b, err := u.take(n)
	if err != nil {
		return err
	}
	if !utf8.Valid(b) {
		return fmt.Errorf("a string is not UTF-8: the pickle is damaged")
	}
	return u.make(string(b))
}

func (u *unpickler) tupleOf(n int) error {
	t := make(tuple, n)
	for i := n - 1; i >= 0; i-- {
		v, err := u.pop()
		if err != nil {
			return err
		}
		t[i] = v
	}
	return u.make(t)
}

func (u *unpickler) tupleOfMark() error {
	items, err := u.popMark()
	if err != nil {
		return err
	}
	return u.make(tuple(items))
}

// topAs returns the value on top, which must be of one type.
func topAs[T any](u *unpickler, want string) (v T, err error) {
	top, err := u.top()
	if err != nil {
		return v, err
	}
	v, ok := top.(T)
	if !ok {
		return v, fmt.Errorf("want %s, got %s: the pickle is damaged", want, kind(top))
	}
	return v, nil
}

func (u *unpickler) appendOne() error {
	v, err := u.pop()
	if err != nil {
		return err
	}
	l, err := topAs[*list](u, "a list")
	if err == nil {
		err = u.grow(1)
	}
	if err != nil {
		return err
	}
	l.items = append(l.items, v)
	return nil
}

func (u *unpickler) appendMark() error {
	items, err := u.popMark()
	if err != nil {
		return err
	}
	l, err := topAs[*list](u, "a list")
	if err == nil {
		err = u.grow(len(items))
	}
	if err != nil {
		return err
	}
	l.items = append(l.items, items...)
	return nil
}

// grow counts items of lists and dictionaries among the objects.
func (u *unpickler) grow(n int) error {
	if u.objects += n; u.objects > maxObjects {
		return fmt.Errorf("more than %d objects: no file of tensors has so many", maxObjects)
	}
	return nil
}

func (u *unpickler) setOne() error {
	v, err := u.pop()
	if err != nil {
		return err
	}
	k, err := u.pop()
	if err != nil {
		return err
	}
	return u.set([]any{k, v})
}

func (u *unpickler) setMark() error {
	items, err := u.popMark()
	if err != nil {
		return err
	}
	return u.set(items)
}

// set puts keys and values into the dictionary on top.
func (u *unpickler) set(items []any) error {
	d, err := topAs[*dict](u, "a dictionary")
	if err == nil && len(items)%2 != 0 {
		err = fmt.Errorf("a key has no value: the pickle is damaged")
	}
	if err == nil {
		err = u.grow(len(items))
	}
	if err != nil {
		return err
	}
	for i := 0; i < len(items); i += 2 {
		d.set(items[i], items[i+1])
	}
	return nil
}

func (u *unpickler) put(width int) error {
	n, err := u.number(width)
	if err != nil {
		return err
	}
	return u.remember(uint32(n))
}

func (u *unpickler) remember(n uint32) error {
	v, err := u.top()
	if err == nil {
		err = u.grow(1)
	}
	if err != nil {
		return err
	}
	u.memo[n] = v
	return nil
}

func (u *unpickler) get(width int) error {
	n, err := u.number(width)
	if err != nil {
		return err
	}
	v, ok := u.memo[uint32(n)]
	if !ok {
		return fmt.Errorf("nothing is remembered as %d: the pickle is damaged", n)
	}
	return u.push(v)
}

func (u *unpickler) line() (string, error) {
	n := bytes.IndexByte(u.text[u.pos:], '\n')
	if n < 0 {
		return "", fmt.Errorf("the pickle ends within a name: fetch the file again")
	}
	b, err := u.take(uint64(n) + 1)
	return string(b[:n]), err
}

func (u *unpickler) global() error {
	module, err := u.line()
	if err != nil {
		return err
	}
	name, err := u.line()
	if err != nil {
		return err
	}
	return u.pushGlobal(global{module, name})
}

func (u *unpickler) stackGlobal() error {
	n, err := u.pop()
	if err != nil {
		return err
	}
	m, err := u.pop()
	if err != nil {
		return err
	}
	module, ok := m.(string)
	name, ok2 := n.(string)
	if !ok || !ok2 {
		return fmt.Errorf("want a module and a name, got %s and %s", kind(m), kind(n))
	}
	return u.pushGlobal(global{module, name})
}

func (u *unpickler) pushGlobal(g global) error {
	if !known(g) {
		return fmt.Errorf("the file asks for %q, which no tensor needs; nothing of it was executed. Do not load a file that you do not trust. If you trust this one, save its tensors alone: torch.save(model.state_dict(), FILE)", few.Text(g.String(), 120))
	}
	return u.make(g)
}

func (u *unpickler) persistentID() error {
	v, err := u.pop()
	if err != nil {
		return err
	}
	id, ok := v.(tuple)
	if !ok {
		return fmt.Errorf("want the tuple of a storage, got %s", kind(v))
	}
	s, err := u.persistent(id)
	if err != nil {
		return err
	}
	return u.make(s)
}

func (u *unpickler) reduce() error {
	a, err := u.pop()
	if err != nil {
		return err
	}
	f, err := u.pop()
	if err != nil {
		return err
	}
	args, ok := a.(tuple)
	g, ok2 := f.(global)
	construct := constructors[g]
	if !ok || !ok2 || construct == nil {
		return fmt.Errorf("%s is called with %s: tensors are not made like that", kind(f), kind(a))
	}
	v, err := construct(args)
	if err != nil {
		return err
	}
	if d, ok := v.(*dict); ok {
		if err := u.grow(2 * len(d.keys)); err != nil {
			return err
		}
	}
	return u.make(v)
}

// build ignores the attributes of a dictionary: a state_dict has the versions of
// its modules.
func (u *unpickler) build() error {
	if _, err := u.pop(); err != nil {
		return err
	}
	_, err := topAs[*dict](u, "a dictionary")
	return err
}
