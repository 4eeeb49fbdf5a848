package ptxsim

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"sync"
)

// class is one of a warp's three register files.
type class uint8

const (
	classR class = iota // up to 32 bits
	classD              // 64 bits
	classP              // predicates, one bit per lane
)

// ref is a register of a warp.
type ref struct {
	class class
	index int
}

func classOf(t typ) class {
	switch {
	case t == tPred:
		return classP
	case t.size() == 8:
		return classD
	}
	return classR
}

// control is how an instruction affects the order of execution.
type control uint8

const (
	straight control = iota
	branch
	branchTable
	leave     // exit, and ret of an entry
	barrier   // bar.sync, bar.red, bar.arrive
	converged // needs all 32 lanes: mma, ldmatrix
	agreed    // needs the lanes in a mask: shfl, vote, match, redux, bar.warp
)

// inst is a compiled instruction. run is called with the lanes that execute it, of which there is at least
// one.
type inst struct {
	run     func(w *warp, m uint32)
	control control
	pipe    Pipe
	takes   takes
	stores  bool
	rolled  bool                     // for a branch: the loop that it goes back to is not unrolled
	pred    int                      // predicate register, or -1
	negated bool                     // negates pred
	to      int                      // target of a branch
	target  func(w *warp, l int) int // target of a branch by a table
	members ref                      // mask operand of an agreed instruction
	bar     *barrierOp
	at      int // index in the kernel's code
	st      *statement
	src     []ref
	dst     []ref
}

// fixed is a register with the same value in all lanes: a literal, an address, a special register.
type fixed struct {
	ref   ref
	value uint64
	sym   *symbol
	kind  fixedKind
}

type fixedKind uint8

const (
	fixedValue   fixedKind = iota
	fixedDynamic           // start of dynamic shared memory, plus value
	fixedGlobal            // address of sym, plus value
)

type fixedKey struct {
	class class
	value uint64
	sym   *symbol
	kind  fixedKind
}

// program is what a kernel needs of each warp.
type program struct {
	count     [3]int // registers of each class
	names     [3][]string
	fixed     []fixed
	specials  map[string]ref
	variables []registers // those of the text, of every inlined copy
	defined   []ref       // registers that may be undefined on purpose
	local     uint64
	dynAlign  uint64
	atomics   bool // the order of blocks can show
}

// registers are those of a class from one index up to another.
type registers struct {
	class    class
	from, to int
}

// following adds a register to a list of registers, of which those that follow one another are one entry.
func following(list []registers, r ref) []registers {
	for i := range list {
		if x := &list[i]; x.class == r.class && x.to == r.index {
			x.to++
			return list
		}
	}
	return append(list, registers{r.class, r.index, r.index + 1})
}

// binding is where a symbol of one instance of a function is stored.
type binding struct {
	ref    ref
	offset uint64 // in local memory, for a .param or .local variable
}

// instance is one inlined copy of a function.
type instance struct {
	fn    *function
	up    *instance
	bound map[*symbol]binding
	at    []int // index of the instruction for each statement
	fixes []fix // branches within the instance
}

type fix struct {
	inst, statement int
}

// compiler compiles a kernel to instructions.
type compiler struct {
	m       *Module
	k       *Kernel
	inst    *instance
	shared  map[*symbol]uint64
	fixed   map[fixedKey]ref
	scratch [4]ref // registers for an mma whose result overlaps its operands

	// These describe the current statement.
	st    *statement
	op    string   // with its modifiers
	parts []string // op, split at its dots
	args  []string
	in    *inst
}

// handler finds the function that compiles an opcode, by its first part.
func handler(name string) func(c *compiler) error {
	for _, table := range [...]map[string]func(c *compiler) error{controlOps, integerOps, floatOps, moveOps, memoryOps, warpOps, matrixOps} {
		if h := table[name]; h != nil {
			return h
		}
	}
	return nil
}

func compile(m *Module, f *function) (*Kernel, error) {
	k := &Kernel{Name: f.name, MaxThreads: f.max, Required: f.req, module: m, blocks: new(sync.Pool)}
	k.specials = map[string]ref{}
	k.dynAlign = 1
	c := &compiler{m: m, k: k, shared: map[*symbol]uint64{}, fixed: map[fixedKey]ref{}}
	for i := range c.scratch {
		c.scratch[i] = c.newRegister(classR)
	}
	for _, x := range f.args {
		k.Params = append(k.Params, Param{x.name, int(x.offset), int(x.size), int(x.align)})
		k.ParamBytes = int(x.offset + x.size)
	}
	if !f.defined {
		return nil, fmt.Errorf("ptx line %d: %s has no body", f.line, f.name)
	}
	if err := c.function(f, &instance{fn: f, bound: map[*symbol]binding{}}); err != nil {
		return nil, err
	}
	c.in = &inst{control: leave, pred: -1, st: &statement{text: "end of the body", line: f.line}}
	c.append()
	if k.StaticShared > maxStatic {
		return nil, fmt.Errorf("%s: %d bytes of static shared memory, at most %d are possible", f.name, k.StaticShared, maxStatic)
	}
	for i := range k.fixed {
		if x := &k.fixed[i]; x.kind == fixedDynamic {
			x.value += k.dynamicBase()
		}
	}
	return k, nil
}

// dynamicBase is the address in shared memory where dynamic shared memory begins.
func (k *Kernel) dynamicBase() uint64 { return roundUp(uint64(k.StaticShared), k.dynAlign) }

func (c *compiler) errorf(format string, a ...any) error {
	return fmt.Errorf("%s: %s", c.m.where(c.st), fmt.Sprintf(format, a...))
}

// where describes a statement's line in the PTX and in the source.
func (m *Module) where(st *statement) string {
	src := ""
	if st.row > 0 {
		if name := m.files[st.file]; name != "" {
			src = fmt.Sprintf(" (%s:%d)", name, st.row)
		} else if st.note != "" {
			src = fmt.Sprintf(" (%s)", st.note)
		} else {
			src = fmt.Sprintf(" (file %d:%d)", st.file, st.row)
		}
	} else if m.Source != nil {
		if at := m.Source(st.line); at != "" {
			src = fmt.Sprintf(" (%s)", at)
		}
	}
	text := strings.Join(strings.Fields(st.text), " ")
	if len(text) > 200 {
		text = text[:200] + "..."
	}
	return fmt.Sprintf("ptx line %d%s: %#q", st.line, src, text)
}

// function compiles an instance of a function at the end of the code so far.
func (c *compiler) function(f *function, in *instance) error {
	outer := c.inst
	c.inst = in
	defer func() { c.inst = outer }()
	in.at = make([]int, len(f.body)+1)
	for i := range f.body {
		in.at[i] = len(c.k.code)
		if err := c.statement(&f.body[i]); err != nil {
			return err
		}
	}
	in.at[len(f.body)] = len(c.k.code)
	for _, x := range in.fixes {
		c.k.code[x.inst].to = in.at[x.statement]
		c.k.code[x.inst].rolled = x.statement < len(f.body) && f.body[x.statement].rolled
	}
	return nil
}

func (c *compiler) append() {
	c.in.at = len(c.k.code)
	c.k.code = append(c.k.code, *c.in)
}

func (c *compiler) statement(st *statement) error {
	c.st = st
	c.in = &inst{pred: -1, st: st}
	s := st.text
	if strings.HasPrefix(s, "@") {
		s = strings.TrimSpace(s[1:])
		if strings.HasPrefix(s, "!") {
			c.in.negated = true
			s = strings.TrimSpace(s[1:])
		}
		name := word(s)
		r, t, err := c.register(name)
		if err != nil {
			return err
		}
		if t != tPred {
			return c.errorf("%s is not a predicate", name)
		}
		c.in.pred = r.index
		c.in.src = append(c.in.src, r)
		s = strings.TrimSpace(s[len(name):])
	}
	i := strings.IndexAny(s, " \t\r\n{[(")
	if i < 0 {
		i = len(s)
	}
	c.op, c.args = s[:i], split(s[i:])
	c.parts = strings.Split(c.op, ".")
	h := handler(c.parts[0])
	if h == nil {
		return c.errorf("the instruction is not known")
	}
	if c.m.code++; c.m.code > maxCode {
		return c.errorf("more than %d instructions once calls are inlined", maxCode)
	}
	if c.parts[0] == "call" {
		return h(c)
	}
	in := c.in
	if err := h(c); err != nil {
		return err
	}
	if in.pipe == 0 {
		in.pipe = pipeOf(c.parts)
	}
	in.takes = takesOf(c.parts, c.args, in.pipe)
	in.stores = c.parts[0] == "st" || c.parts[0] == "red" || c.parts[0] == "atom"
	c.append()
	return nil
}

// has reports whether the opcode has a modifier.
func (c *compiler) has(modifier string) bool {
	for _, p := range c.parts[1:] {
		if p == modifier {
			return true
		}
	}
	return false
}

// allow returns an error if there is a modifier that is not listed, other than a type.
func (c *compiler) allow(list ...string) error {
next:
	for _, p := range c.parts[1:] {
		if _, ok := typeNames[p]; ok {
			continue
		}
		for _, a := range list {
			if a == p {
				continue next
			}
		}
		return c.errorf(".%s is not known here", p)
	}
	return nil
}

// typ is the opcode's n-th type from the end.
func (c *compiler) typ(n int) (typ, error) {
	for i := len(c.parts) - 1; i > 0; i-- {
		if t, ok := typeNames[c.parts[i]]; ok {
			if n == 0 {
				return t, nil
			}
			n--
		}
	}
	return 0, c.errorf("a type is missing")
}

// typed checks the number of operands and the modifiers, and returns the last type.
func (c *compiler) typed(operands int, modifiers ...string) (typ, error) {
	if len(c.args) != operands {
		return 0, c.errorf("%d operands, %d are needed", len(c.args), operands)
	}
	if err := c.allow(modifiers...); err != nil {
		return 0, err
	}
	return c.typ(0)
}

func (c *compiler) newRegister(cl class) ref {
	r := ref{cl, c.k.count[cl]}
	c.k.count[cl]++
	c.k.names[cl] = append(c.k.names[cl], "a register")
	return r
}

// bind allocates storage for a symbol in this instance.
func (c *compiler) bind(x *symbol) (binding, error) {
	if b, ok := c.inst.bound[x]; ok {
		return b, nil
	}
	var b binding
	if x.kind == symRegister {
		b.ref = c.newRegister(classOf(x.typ))
		c.k.names[b.ref.class][b.ref.index] = x.name
		c.k.variables = following(c.k.variables, b.ref)
		if x.defined {
			c.k.defined = append(c.k.defined, b.ref)
		}
	} else {
		at := roundUp(c.k.local, x.align)
		if at+x.size > maxLocal {
			return b, c.errorf("more than %d bytes of local memory a thread", maxLocal)
		}
		c.k.local, b.offset = at+x.size, at
	}
	c.inst.bound[x] = b
	return b, nil
}

// register finds a declared or special register.
func (c *compiler) register(name string) (ref, typ, error) {
	if x := c.st.scope.find(name); x != nil && x.kind == symRegister {
		b, err := c.bind(x)
		return b.ref, x.typ, err
	}
	if t, ok := specialRegisters[name]; ok {
		r, ok := c.k.specials[name]
		if !ok {
			r = c.newRegister(classOf(t))
			c.k.specials[name] = r
		}
		return r, t, nil
	}
	return ref{}, 0, c.errorf("%s is not declared", name)
}

func (c *compiler) constant(cl class, value uint64, sym *symbol, kind fixedKind) ref {
	key := fixedKey{cl, value, sym, kind}
	if r, ok := c.fixed[key]; ok {
		return r
	}
	r := c.newRegister(cl)
	c.fixed[key] = r
	c.k.fixed = append(c.k.fixed, fixed{r, value, sym, kind})
	return r
}

// arg is the text of an operand.
func (c *compiler) arg(i int) (string, error) {
	if i >= len(c.args) {
		return "", c.errorf("operand %d is missing", i+1)
	}
	return c.args[i], nil
}

// read returns a register of type t with the value of an operand's text.
func (c *compiler) read(s string, t typ) (ref, error) {
	if s == "" {
		return ref{}, c.errorf("an operand is empty")
	}
	if t == tPred {
		return c.readPredicate(s)
	}
	if s[0] >= '0' && s[0] <= '9' || s[0] == '-' || s[0] == '+' || s == "WARP_SZ" {
		v, err := literal(s, t)
		if err != nil {
			return ref{}, c.errorf("%q is not a value of type .%s", s, t)
		}
		return c.constant(classOf(t), v, nil, fixedValue), nil
	}
	name := s
	if x := c.st.scope.find(word(s)); x != nil && x.kind != symRegister {
		return c.address(x, s[len(word(s)):], classOf(t))
	}
	r, have, err := c.register(name)
	if err != nil {
		return r, err
	}
	if have == tPred || have.size() != t.size() {
		return r, c.errorf("%s is a register of type .%s where .%s is needed", name, have, t)
	}
	c.in.src = append(c.in.src, r)
	return r, nil
}

func (c *compiler) readPredicate(s string) (ref, error) {
	if v, err := strconv.ParseInt(s, 0, 64); err == nil {
		bits := uint64(0)
		if v != 0 {
			bits = math.MaxUint32
		}
		return c.constant(classP, bits, nil, fixedValue), nil
	}
	r, t, err := c.register(s)
	if err != nil {
		return r, err
	}
	if t != tPred {
		return r, c.errorf("%s is not a predicate", s)
	}
	c.in.src = append(c.in.src, r)
	return r, nil
}

// address returns a register with a variable's address in its own space.
func (c *compiler) address(x *symbol, plus string, cl class) (ref, error) {
	off := uint64(0)
	if plus != "" {
		v, err := strconv.ParseInt(strings.ReplaceAll(plus, " ", ""), 0, 32)
		if err != nil {
			return ref{}, c.errorf("%s%s is not an address", x.name, plus)
		}
		off = uint64(v)
	}
	if cl == classP {
		return ref{}, c.errorf("%s is not a predicate", x.name)
	}
	switch {
	case x.space == shared && x.dynamic:
		c.k.dynAlign = max(c.k.dynAlign, x.align)
		return c.constant(cl, off, nil, fixedDynamic), nil
	case x.space == shared:
		at, ok := c.shared[x]
		if !ok {
			at = roundUp(uint64(c.k.StaticShared), x.align)
			c.shared[x] = at
			c.k.StaticShared = int(min(at+x.size, math.MaxInt32))
		}
		return c.constant(cl, at+off, nil, fixedValue), nil
	case x.space == global || x.space == constant:
		if cl != classD {
			return ref{}, c.errorf("the address of %s has 64 bits", x.name)
		}
		return c.constant(cl, off, x, fixedGlobal), nil
	case x.kind == symParameter && c.inst.up == nil && c.inst.fn.formal(x):
		return c.constant(cl, x.offset+off, nil, fixedValue), nil
	}
	b, err := c.bind(x)
	return c.constant(cl, b.offset+off, nil, fixedValue), err
}

// formal reports whether x is a parameter of an entry.
func (f *function) formal(x *symbol) bool {
	if !f.entry {
		return false
	}
	for _, y := range f.args {
		if x == y {
			return true
		}
	}
	return false
}

// src returns a register of type t from which to read operand i.
func (c *compiler) src(i int, t typ) (ref, error) {
	s, err := c.arg(i)
	if err != nil {
		return ref{}, err
	}
	return c.read(s, t)
}

// dst returns the first operand as a register of type t to write to.
func (c *compiler) dst(t typ) (ref, error) {
	s, err := c.arg(0)
	if err != nil {
		return ref{}, err
	}
	return c.write(s, t)
}

func (c *compiler) write(s string, t typ) (ref, error) {
	if s == "_" {
		return c.newRegister(classOf(t)), nil
	}
	x := c.st.scope.find(s)
	if x == nil || x.kind != symRegister {
		return ref{}, c.errorf("%s is not a register that can be written", s)
	}
	if x.typ.size() != t.size() || (x.typ == tPred) != (t == tPred) {
		return ref{}, c.errorf("%s is a register of type .%s where .%s is needed", s, x.typ, t)
	}
	b, err := c.bind(x)
	c.in.dst = append(c.in.dst, b.ref)
	return b.ref, err
}

// wide returns a register that may be wider than the instruction's type, as ld, st and cvt allow.
func (c *compiler) wide(s string, t typ, write bool) (ref, typ, error) {
	x := c.st.scope.find(s)
	if x == nil || x.kind != symRegister || x.typ == tPred || x.typ.size() <= t.size() {
		var r ref
		var err error
		if write {
			r, err = c.write(s, t)
		} else {
			r, err = c.read(s, t)
		}
		return r, t, err
	}
	b, err := c.bind(x)
	if write {
		c.in.dst = append(c.in.dst, b.ref)
	} else {
		c.in.src = append(c.in.src, b.ref)
	}
	return b.ref, x.typ, err
}

// vector returns the elements of "{a, b}", or the single operand.
func vector(s string) []string {
	if strings.HasPrefix(s, "{") && strings.HasSuffix(s, "}") {
		return split(s[1 : len(s)-1])
	}
	return []string{s}
}

// pointer is the operand "[base+offset]": a register of 32 or 64 bits, and a number to add.
type pointer struct {
	base  ref
	off   uint64
	space space
	param bool // a kernel parameter, so that the address is an offset into its parameter block
}

func (c *compiler) pointer(i int, sp space) (pointer, error) {
	p := pointer{space: sp}
	s, err := c.arg(i)
	if err != nil {
		return p, err
	}
	if !strings.HasPrefix(s, "[") || !strings.HasSuffix(s, "]") {
		return p, c.errorf("%s is not an address in brackets", s)
	}
	s = strings.TrimSpace(s[1 : len(s)-1])
	name := word(s)
	rest := strings.ReplaceAll(strings.TrimSpace(s[len(name):]), " ", "")
	if rest != "" {
		rest = strings.TrimPrefix(rest, "+")
		v, err := strconv.ParseInt(rest, 0, 64)
		if err != nil {
			return p, c.errorf("%s is not an address", s)
		}
		p.off = uint64(v)
	}
	x := c.st.scope.find(name)
	switch {
	case x != nil && x.kind == symRegister:
		b, err := c.bind(x)
		if err != nil {
			return p, err
		}
		p.base = b.ref
		c.in.src = append(c.in.src, b.ref)
		if sz := x.typ.size(); sz != 8 && (sz != 4 || sp == generic || sp == global) {
			return p, c.errorf("%s has .%s where the address has 64 bits", name, x.typ)
		}
	case x != nil:
		if sp == generic {
			p.space = x.space
		} else if x.space != sp && !(x.kind == symParameter && sp == param) {
			return p, c.errorf("%s is in .%s", name, x.space)
		}
		if p.base, err = c.address(x, "", classD); err != nil {
			return p, err
		}
		if p.space == param && !(c.inst.up == nil && c.inst.fn.formal(x)) {
			p.space = local // parameters of functions and calls are in the thread's memory
		}
	default:
		v, err := strconv.ParseUint(name, 0, 64)
		if err != nil {
			return p, c.errorf("%s is not declared", name)
		}
		p.base = c.constant(classD, v, nil, fixedValue)
	}
	p.param = p.space == param
	return p, nil
}

// literal parses a number as a value of type t.
func literal(s string, t typ) (uint64, error) {
	switch {
	case s == "WARP_SZ":
		return 32, nil
	case strings.HasPrefix(s, "0f") || strings.HasPrefix(s, "0F"):
		v, err := strconv.ParseUint(s[2:], 16, 32)
		if t == tF64 {
			v = math.Float64bits(float64(math.Float32frombits(uint32(v))))
		}
		return v, err
	case strings.HasPrefix(s, "0d") || strings.HasPrefix(s, "0D"):
		v, err := strconv.ParseUint(s[2:], 16, 64)
		if t == tF32 {
			v = uint64(math.Float32bits(float32(math.Float64frombits(v))))
		}
		return v, err
	case (t == tF32 || t == tF64) && strings.ContainsAny(s, ".eE") && !strings.HasPrefix(s, "0x"):
		v, err := strconv.ParseFloat(s, 64)
		if t == tF32 {
			return uint64(math.Float32bits(float32(v))), err
		}
		return math.Float64bits(v), err
	}
	s = strings.TrimSuffix(s, "U")
	mask := uint64(math.MaxUint64) >> (64 - 8*max(t.size(), 1))
	if strings.HasPrefix(s, "-") || strings.HasPrefix(s, "+") {
		v, err := strconv.ParseInt(s, 0, 64)
		return uint64(v) & mask, err
	}
	v, err := strconv.ParseUint(s, 0, 64)
	return v & mask, err
}

// lanesOf calls f for every lane of a mask.
func lanesOf(m uint32, f func(l int)) {
	for ; m != 0; m &= m - 1 {
		f(bits.TrailingZeros32(m))
	}
}
