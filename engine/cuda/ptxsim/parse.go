package ptxsim

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// These limits keep the memory that a text can ask for in proportion to what a card has.
const (
	maxText      = 64 << 20 // bytes of text
	maxRegisters = 1 << 20  // in one .reg range
	maxCode      = 1 << 20  // instructions of a module, with calls inlined
	maxVariable  = 1 << 28  // bytes of all .global and .const variables
	maxLocal     = 512 << 10
	maxShared    = 227 << 10 // dynamic and static, the most that any supported card offers
	maxStatic    = 48 << 10  // static, the limit of ptxas
	maxParams    = 4352
	maxDepth     = 64 // nested scopes and calls
)

// Module is a parsed PTX file, with every kernel compiled for interpretation.
type Module struct {
	Version, Target string
	// Source names the line of the source of a line of PTX, or what it was generated for, for texts without .loc
	// directives; nil: unknown.
	Source func(line int) string

	kernels  map[string]*Kernel
	funcs    map[string]*function
	scope    *scope // of the module
	vars     []*symbol
	varBytes uint64
	files    map[int]string
	code     int // number of instructions of all kernels
}

// Kernel returns the entry with a name, or nil.
func (m *Module) Kernel(name string) *Kernel { return m.kernels[name] }

// Kernels lists the names of all entries, sorted.
func (m *Module) Kernels() []string { return slices.Sorted(maps.Keys(m.kernels)) }

// Param is the place of a parameter in a kernel's parameter block.
type Param struct {
	Name                string
	Offset, Size, Align int
}

// Kernel is an entry that is ready to be launched.
type Kernel struct {
	Name         string
	Params       []Param
	ParamBytes   int       // size of the parameter block
	StaticShared int       // bytes of shared memory before the dynamic part
	MaxThreads   int       // from .maxntid or .reqntid; 0 if the text gives none
	Required     [3]uint32 // .reqntid, or zeros

	module *Module
	code   []inst
	blocks *sync.Pool // of *block, left by earlier launches of the kernel or a copy
	program
}

type symbolKind uint8

const (
	symRegister symbolKind = iota
	symVariable
	symParameter // formal parameter or .param variable of a function
)

type symbol struct {
	name    string
	kind    symbolKind
	typ     typ
	space   space
	size    uint64
	align   uint64
	dynamic bool   // extern .shared
	offset  uint64 // offset of an entry's formal parameter
	init    []byte
	defined bool // undefined on purpose: "implicit-def"
}

type regRange struct {
	count int
	typ   typ
}

type scope struct {
	up     *scope
	syms   map[string]*symbol
	ranges map[string]regRange
	labels map[string]int      // index into function.body
	tables map[string][]string // the labels in a .branchtargets
}

func newScope(up *scope) *scope {
	return &scope{up: up, syms: map[string]*symbol{}, ranges: map[string]regRange{}, labels: map[string]int{}}
}

// find looks up a name from the innermost scope outwards; a range's registers are created on first use.
func (s *scope) find(name string) *symbol {
	for ; s != nil; s = s.up {
		if x := s.syms[name]; x != nil {
			return x
		}
		i := len(name)
		for i > 0 && name[i-1] >= '0' && name[i-1] <= '9' {
			i--
		}
		r, ok := s.ranges[name[:i]]
		if !ok || i == len(name) || name[i] == '0' && i < len(name)-1 {
			continue
		}
		if n, err := strconv.Atoi(name[i:]); err == nil && n < r.count {
			x := &symbol{name: name, kind: symRegister, typ: r.typ}
			s.syms[name] = x
			return x
		}
	}
	return nil
}

func (s *scope) label(name string) (int, bool) {
	for ; s != nil; s = s.up {
		if at, ok := s.labels[name]; ok {
			return at, true
		}
	}
	return 0, false
}

type function struct {
	name    string
	entry   bool
	ret     []*symbol
	args    []*symbol
	body    []statement
	defined bool
	line    int
	max     int
	req     [3]uint32
}

// statement is an instruction whose operands are still text.
type statement struct {
	text  string
	line  int // of the PTX
	file  int
	row   int    // line of the source; 0 if unknown
	note  string // clang's comment after .loc
	scope *scope
	// rolled says that the loop which begins here must not be unrolled.
	rolled bool
}

// parser is a position in the text.
type parser struct {
	m     *Module
	text  string
	pos   int
	line  int
	fn    *function
	scope *scope
	file  int
	row   int
	note  string
	// rolled applies to the next statement.
	rolled bool
}

// Parse parses a PTX module and compiles its kernels. It returns an error for whatever it does not know,
// quoting the line.
func Parse(text string) (*Module, error) {
	if len(text) > maxText {
		return nil, fmt.Errorf("ptx: %d bytes of text, at most %d are taken", len(text), maxText)
	}
	m := &Module{kernels: map[string]*Kernel{}, funcs: map[string]*function{}, scope: newScope(nil), files: map[int]string{}}
	p := &parser{m: m, text: text, line: 1, scope: m.scope}
	if err := p.module(); err != nil {
		return nil, err
	}
	if m.Version == "" || m.Target == "" {
		return nil, fmt.Errorf("ptx: no .version or no .target")
	}
	for _, f := range slices.SortedFunc(maps.Values(m.funcs), func(a, b *function) int { return a.line - b.line }) {
		if !f.entry {
			continue
		}
		k, err := compile(m, f)
		if err != nil {
			return nil, err
		}
		m.kernels[f.name] = k
	}
	return m, nil
}

// Constant reports whether kernels cannot change the module's variables, so that one module can stand for
// several loaded from the same text.
func (m *Module) Constant() bool {
	return !slices.ContainsFunc(m.vars, func(x *symbol) bool { return x.space != constant })
}

// WithSource returns a copy of m with another Source. The two share their kernels' code.
func (m *Module) WithSource(source func(line int) string) *Module {
	c := *m
	c.Source, c.kernels = source, make(map[string]*Kernel, len(m.kernels))
	for name, k := range m.kernels {
		c.kernels[name] = &Kernel{
			Name: k.Name, Params: k.Params, ParamBytes: k.ParamBytes, StaticShared: k.StaticShared, MaxThreads: k.MaxThreads, Required: k.Required,
			module: &c, code: k.code, blocks: k.blocks, program: k.program,
		}
	}
	return &c
}

func (p *parser) errorf(line int, format string, a ...any) error {
	return fmt.Errorf("ptx line %d: %s", line, fmt.Sprintf(format, a...))
}

// blank skips white space and comments.
func (p *parser) blank() {
	for p.pos < len(p.text) {
		switch c := p.text[p.pos]; {
		case c == '\n':
			p.line++
			p.pos++
		case c == ' ' || c == '\t' || c == '\r':
			p.pos++
		case strings.HasPrefix(p.text[p.pos:], "//"):
			p.comment()
		case strings.HasPrefix(p.text[p.pos:], "/*"):
			end := strings.Index(p.text[p.pos+2:], "*/")
			if end < 0 {
				end = len(p.text) - p.pos - 2
			} else {
				end += 2
			}
			s := p.text[p.pos : p.pos+2+end]
			p.line += strings.Count(s, "\n")
			p.pos += len(s)
		default:
			return
		}
	}
}

// comment skips a comment to the end of its line, but records clang's note of a register left undefined on
// purpose.
func (p *parser) comment() {
	s := p.restOfLine()
	if name, ok := strings.CutPrefix(strings.TrimSpace(s[2:]), "implicit-def: "); ok && p.fn != nil {
		if x := p.scope.find(strings.TrimSpace(name)); x != nil {
			x.defined = true
		}
	}
}

// restOfLine takes the text up to the end of the line, which is left.
func (p *parser) restOfLine() string {
	s := p.text[p.pos:]
	if i := strings.IndexByte(s, '\n'); i >= 0 {
		s = s[:i]
	}
	p.pos += len(s)
	return s
}

// until takes the text up to one of the characters in stop, without comments, and leaves that character.
func (p *parser) until(stop string) (string, error) {
	var b strings.Builder
	start := p.line
	from := p.pos
	flush := func() { b.WriteString(p.text[from:p.pos]) }
	for p.pos < len(p.text) {
		c := p.text[p.pos]
		switch {
		case strings.IndexByte(stop, c) >= 0:
			flush()
			return strings.TrimSpace(b.String()), nil
		case c == '/' && p.pos+1 < len(p.text) && (p.text[p.pos+1] == '/' || p.text[p.pos+1] == '*'):
			flush()
			b.WriteByte(' ')
			p.blank()
			from = p.pos
		case c == '"':
			i := strings.IndexAny(p.text[p.pos+1:], "\"\n")
			if i < 0 {
				return "", p.errorf(p.line, "a string without an end")
			}
			p.pos += i + 2
		case c == '\n':
			p.line++
			p.pos++
		default:
			p.pos++
		}
	}
	return "", p.errorf(start, "the text ends within a statement; %q is missing", stop)
}

func (p *parser) peek() byte {
	if p.pos < len(p.text) {
		return p.text[p.pos]
	}
	return 0
}

func word(s string) string {
	i := 0
	for i < len(s) && (s[i] == '_' || s[i] == '$' || s[i] == '%' || s[i] == '.' || s[i] >= '0' && s[i] <= '9' || s[i]|0x20 >= 'a' && s[i]|0x20 <= 'z') {
		i++
	}
	return s[:i]
}

func identifier(s string) bool {
	if s == "" || s[0] >= '0' && s[0] <= '9' || strings.Contains(s, ".") {
		return false
	}
	return word(s) == s
}

func (p *parser) module() error {
	for {
		p.blank()
		if p.pos >= len(p.text) {
			return nil
		}
		line := p.line
		w := word(p.text[p.pos:])
		switch w {
		case ".version", ".target", ".address_size", ".file", ".loc":
			if err := p.header(p.restOfLine(), line); err != nil {
				return err
			}
			continue
		case ".section":
			if err := p.section(); err != nil {
				return err
			}
			continue
		}
		s, err := p.until("{;=")
		if err != nil {
			return err
		}
		if strings.Contains(s, ".entry") || strings.Contains(s, ".func") {
			err = p.function(s, line)
		} else {
			err = p.variables(s, line)
		}
		if err != nil {
			return err
		}
	}
}

// header parses a directive that ends with its line.
func (p *parser) header(s string, line int) error {
	note := ""
	if i := strings.Index(s, "//"); i >= 0 {
		s, note = s[:i], strings.TrimSpace(s[i+2:])
	}
	f := strings.Fields(strings.ReplaceAll(s, ",", " "))
	bad := func() error { return p.errorf(line, "%s: not understood", strings.TrimSpace(s)) }
	switch f[0] {
	case ".version":
		if len(f) != 2 {
			return bad()
		}
		p.m.Version = f[1]
	case ".target":
		if len(f) < 2 {
			return bad()
		}
		p.m.Target = f[1]
	case ".address_size":
		if len(f) != 2 || f[1] != "64" {
			return p.errorf(line, "%s: only 64-bit addresses are modeled", strings.TrimSpace(s))
		}
	case ".file":
		if len(f) < 3 {
			return bad()
		}
		n, err := strconv.Atoi(f[1])
		if err != nil {
			return bad()
		}
		name := strings.Trim(strings.TrimSpace(s[strings.Index(s, f[1])+len(f[1]):]), `"`)
		if i := strings.IndexByte(name, '"'); i >= 0 {
			name = name[:i]
		}
		p.m.files[n] = name[strings.LastIndexByte(name, '/')+1:]
	case ".loc":
		if len(f) < 4 {
			return bad()
		}
		file, err1 := strconv.Atoi(f[1])
		row, err2 := strconv.Atoi(f[2])
		if err1 != nil || err2 != nil {
			return bad()
		}
		p.file, p.row, p.note = file, row, note
	}
	return nil
}

// section skips debug information.
func (p *parser) section() error {
	if _, err := p.until("{"); err != nil {
		return err
	}
	if _, err := p.until("}"); err != nil {
		return err
	}
	p.pos++
	return nil
}

// function parses an entry or a function, given its header, which the caller has taken up to "{" or ";".
func (p *parser) function(s string, line int) error {
	f := &function{line: line}
	key := ".func"
	if strings.Contains(s, ".entry") {
		key, f.entry = ".entry", true
	}
	_, rest, _ := strings.Cut(s, key)
	rest = strings.TrimSpace(rest)
	sc := newScope(p.m.scope)
	var err error
	if !f.entry && strings.HasPrefix(rest, "(") {
		if f.ret, rest, err = p.formals(rest, sc, line); err != nil {
			return err
		}
	}
	f.name = word(rest)
	if !identifier(f.name) {
		return p.errorf(line, "%s: a name is missing", s)
	}
	rest = strings.TrimSpace(rest[len(f.name):])
	if strings.HasPrefix(rest, "(") {
		if f.args, rest, err = p.formals(rest, sc, line); err != nil {
			return err
		}
	}
	if err := f.bounds(rest); err != nil {
		return p.errorf(line, "%s: %v", f.name, err)
	}
	if f.entry {
		if err := f.layout(); err != nil {
			return p.errorf(line, "%s: %v", f.name, err)
		}
	}
	end := p.peek()
	p.pos++
	if end == ';' { // a declaration
		if p.m.funcs[f.name] == nil {
			p.m.funcs[f.name] = f
		}
		return nil
	}
	if end != '{' {
		return p.errorf(line, "%s: %q where a body should begin", f.name, end)
	}
	if old := p.m.funcs[f.name]; old != nil && old.defined {
		return p.errorf(line, "%s is defined twice", f.name)
	}
	f.defined = true
	p.m.funcs[f.name] = f
	p.fn, p.scope, p.file, p.row, p.note = f, sc, 0, 0, ""
	defer func() { p.fn, p.scope = nil, p.m.scope }()
	return p.body()
}

// formals parses a list of parameters in parentheses and returns what follows it.
func (p *parser) formals(s string, sc *scope, line int) (list []*symbol, rest string, err error) {
	end := strings.IndexByte(s, ')')
	if end < 0 {
		return nil, "", p.errorf(line, "%s: ) is missing", s)
	}
	for _, d := range split(s[1:end]) {
		x, err := declare(d)
		if err != nil || x.kind == symVariable && x.space != param {
			return nil, "", p.errorf(line, "parameter %q: not understood", d)
		}
		if sc.syms[x.name] != nil {
			return nil, "", p.errorf(line, "parameter %q: the name is used twice", x.name)
		}
		sc.syms[x.name] = x
		list = append(list, x)
	}
	return list, strings.TrimSpace(s[end+1:]), nil
}

// layout assigns offsets to an entry's parameters.
func (f *function) layout() error {
	var at uint64
	for _, x := range f.args {
		if x.kind == symRegister {
			return fmt.Errorf("parameter %s of an entry is a register", x.name)
		}
		at = roundUp(at, x.align)
		x.kind, x.offset = symParameter, at
		at += x.size
		if at > maxParams {
			return fmt.Errorf("more than %d bytes of parameters", maxParams)
		}
	}
	return nil
}

// bounds parses what is between a header and a body.
func (f *function) bounds(s string) error {
	for s != "" {
		w := word(s)
		if w == "" {
			return fmt.Errorf("%q: not understood", s)
		}
		s = strings.TrimSpace(s[len(w):])
		switch w {
		case ".noreturn":
		case ".maxntid", ".reqntid", ".minnctapersm", ".maxnctapersm", ".maxnreg":
			dims := [3]uint64{1, 1, 1}
			for i := 0; ; i++ {
				n := word(s)
				v, err := strconv.ParseUint(n, 10, 16)
				if err != nil || i > 2 {
					return fmt.Errorf("%s: %q is not a number", w, n)
				}
				dims[i] = v
				s = strings.TrimSpace(s[len(n):])
				if !strings.HasPrefix(s, ",") {
					break
				}
				s = strings.TrimSpace(s[1:])
			}
			if w == ".maxntid" || w == ".reqntid" {
				f.max = int(min(dims[0]*dims[1]*dims[2], 1024))
			}
			if w == ".reqntid" {
				f.req = [3]uint32{uint32(dims[0]), uint32(dims[1]), uint32(dims[2])}
			}
		default:
			return fmt.Errorf("%s: not known", w)
		}
	}
	return nil
}

// declare parses the declaration of one register, parameter or variable: ".param .align 8 .b8 name[96]".
func declare(s string) (*symbol, error) {
	x := &symbol{kind: symVariable, align: 0}
	elements := uint64(1)
	dots := strings.Fields(s)
	for i := 0; i < len(dots); i++ {
		d := dots[i]
		switch {
		case d == ".reg":
			x.kind = symRegister
		case d == ".extern":
			x.dynamic = true
		case d == ".visible" || d == ".weak" || d == ".common" || d == ".managed" || d == ".ptr":
		case d == ".align":
			if i++; i == len(dots) {
				return nil, fmt.Errorf("%s: .align without a number", s)
			}
			n, err := strconv.ParseUint(dots[i], 10, 16)
			if err != nil || n == 0 || n&(n-1) != 0 {
				return nil, fmt.Errorf("%s: alignment %s is not a power of two", s, dots[i])
			}
			if x.size == 0 || x.align == 0 || !strings.Contains(s, ".ptr") {
				x.align = n
			}
		case d == ".v2":
			elements = 2
		case d == ".v4":
			elements = 4
		case d[0] == '.':
			if sp, ok := spaceNames[d[1:]]; ok {
				if x.space == generic { // .ptr is followed by the space that is pointed to
					x.space = sp
				}
				break
			}
			t, ok := typeNames[d[1:]]
			if !ok || !t.scalar() {
				return nil, fmt.Errorf("%s: %s is not known", s, d)
			}
			x.typ = t
		default:
			name := strings.Join(dots[i:], "")
			if j := strings.IndexByte(name, '['); j >= 0 {
				for _, dim := range strings.Split(strings.TrimSuffix(name[j+1:], "]"), "][") {
					if dim == "" {
						elements = 0
						break
					}
					n, err := strconv.ParseUint(dim, 0, 40)
					if err != nil || n > 1<<40/max(elements, 1) {
						return nil, fmt.Errorf("%s: size %q", s, dim)
					}
					elements *= n
				}
				name = name[:j]
			}
			x.name = name
			i = len(dots)
		}
	}
	if !identifier(x.name) || x.typ == tNone {
		return nil, fmt.Errorf("%s: a name or a type is missing", s)
	}
	if strings.Contains(s, ".ptr") {
		x.align = 0 // what follows .ptr describes the memory that is pointed to
	}
	natural := uint64(max(x.typ.size(), 1))
	x.size = elements * natural
	if x.align == 0 {
		x.align = natural
		if elements == 2 && strings.Contains(s, ".v2") || elements == 4 && strings.Contains(s, ".v4") {
			x.align = x.size
		}
	}
	return x, nil
}

// variables parses declarations at module scope or in a body, with an initial value after "=".
func (p *parser) variables(s string, line int) error {
	if s == "" {
		if p.peek() == ';' {
			p.pos++
			return nil
		}
		return p.errorf(line, "%q: not understood", p.peek())
	}
	if strings.HasPrefix(s, ".pragma") {
		p.pos++
		p.rolled = p.rolled || strings.Contains(s, "nounroll")
		return nil
	}
	if strings.HasPrefix(s, ".alias") || s[0] != '.' {
		return p.errorf(line, "%s: not understood", s)
	}
	var init string
	if p.peek() == '=' {
		p.pos++
		var err error
		if init, err = p.until(";"); err != nil {
			return err
		}
	}
	if p.peek() != ';' {
		return p.errorf(line, "%s: ; is missing", s)
	}
	p.pos++
	if strings.HasPrefix(s, ".reg") {
		return p.registers(s, line)
	}
	x, err := declare(s)
	if err != nil {
		return p.errorf(line, "%v", err)
	}
	if err := p.place(x, init); err != nil {
		return p.errorf(line, "%s: %v", s, err)
	}
	if p.scope.syms[x.name] != nil {
		return p.errorf(line, "%s: the name is used twice", x.name)
	}
	p.scope.syms[x.name] = x
	return nil
}

// place checks a variable against its space.
func (p *parser) place(x *symbol, init string) error {
	if x.dynamic && x.space != shared {
		return fmt.Errorf("external variables of other modules are not modeled")
	}
	x.dynamic = x.dynamic || x.space == shared && x.size == 0
	if x.size == 0 && !x.dynamic {
		return fmt.Errorf("the size is missing")
	}
	switch x.space {
	case shared:
		if !x.dynamic && x.size > maxStatic {
			return fmt.Errorf("%d bytes of static shared memory, at most %d are possible", x.size, maxStatic)
		}
	case local, param:
		if p.fn == nil || x.size > maxLocal {
			return fmt.Errorf("a %s variable must be in a function and at most %d bytes", x.space, maxLocal)
		}
		if x.space == param {
			x.kind = symParameter
		}
	case global, constant:
		if x.size > maxVariable || x.align > 256 || p.m.varBytes > maxVariable {
			return fmt.Errorf("variables of more than %d bytes, or aligned to more than 256", maxVariable)
		}
		p.m.varBytes += x.size
		p.m.vars = append(p.m.vars, x)
	default:
		return fmt.Errorf("a state space is missing")
	}
	if init == "" {
		return nil
	}
	if x.space != global && x.space != constant {
		return fmt.Errorf("a %s variable cannot have an initial value", x.space)
	}
	return x.initialize(init)
}

// initialize parses "{1, 2, 3}", nested or not, or a single value.
func (x *symbol) initialize(s string) error {
	n := uint64(x.typ.size())
	for _, v := range strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune("{}, \t\r\n", r) }) {
		bits, err := literal(v, x.typ)
		if err != nil {
			return fmt.Errorf("initial value %q: only numbers are modeled", v)
		}
		if uint64(len(x.init))+n > x.size {
			return fmt.Errorf("more initial values than the %d bytes hold", x.size)
		}
		for i := range n {
			x.init = append(x.init, byte(bits>>(8*i)))
		}
	}
	return nil
}

// registers parses ".reg .b32 %r<10>, %x;".
func (p *parser) registers(s string, line int) error {
	f := strings.Fields(s)
	if len(f) < 3 || f[0] != ".reg" {
		return p.errorf(line, "%s: not understood", s)
	}
	t, ok := typeNames[strings.TrimPrefix(f[1], ".")]
	if !ok || !t.scalar() {
		return p.errorf(line, "%s: type %s is not known", s, f[1])
	}
	for _, name := range split(strings.Join(f[2:], " ")) {
		if i := strings.IndexByte(name, '<'); i >= 0 && strings.HasSuffix(name, ">") {
			n, err := strconv.Atoi(name[i+1 : len(name)-1])
			if err != nil || n < 1 || n > maxRegisters || !identifier(name[:i]) {
				return p.errorf(line, "%s: %q is not a range of registers", s, name)
			}
			p.scope.ranges[name[:i]] = regRange{n, t}
			continue
		}
		if !identifier(name) || p.scope.syms[name] != nil {
			return p.errorf(line, "%s: %q is not a name, or is used for a second register", s, name)
		}
		p.scope.syms[name] = &symbol{name: name, kind: symRegister, typ: t}
	}
	return nil
}

// body parses statements up to the brace that closes the function.
func (p *parser) body() error {
	label := "" // the last one
	for depth := 1; ; {
		p.blank()
		if p.pos >= len(p.text) {
			return p.errorf(p.line, "the text ends within %s", p.fn.name)
		}
		line := p.line
		switch p.peek() {
		case '{':
			p.pos++
			if depth++; depth > maxDepth {
				return p.errorf(line, "scopes more than %d deep", maxDepth)
			}
			p.scope = newScope(p.scope)
			continue
		case '}':
			p.pos++
			if depth--; depth == 0 {
				return nil
			}
			p.scope = p.scope.up
			continue
		case ';':
			p.pos++
			continue
		}
		w := word(p.text[p.pos:])
		switch {
		case w == ".loc" || w == ".file":
			if err := p.header(p.restOfLine(), line); err != nil {
				return err
			}
			continue
		case w == ".section":
			if err := p.section(); err != nil {
				return err
			}
			continue
		case w != "" && w[0] != '.' && identifier(w) && strings.HasPrefix(strings.TrimLeft(p.text[p.pos+len(w):], " \t"), ":") && !strings.HasPrefix(p.text[p.pos+len(w):], "::"):
			if _, twice := p.scope.labels[w]; twice {
				return p.errorf(line, "label %s is defined twice", w)
			}
			p.scope.labels[w] = len(p.fn.body)
			label = w
			p.pos += len(w)
			p.pos += strings.IndexByte(p.text[p.pos:], ':') + 1
			continue
		case w == ".branchtargets":
			if err := p.branchTargets(label, line); err != nil {
				return err
			}
			continue
		case w != "" && w[0] == '.':
			s, err := p.until(";=")
			if err != nil {
				return err
			}
			if err := p.variables(s, line); err != nil {
				return err
			}
			continue
		}
		s, err := p.until(";")
		if err != nil {
			return err
		}
		p.pos++
		if len(p.fn.body) >= maxCode {
			return p.errorf(line, "more than %d instructions", maxCode)
		}
		p.fn.body = append(p.fn.body, statement{text: s, line: line, file: p.file, row: p.row, note: p.note, scope: p.scope, rolled: p.rolled})
		p.rolled = false
	}
}

// branchTargets parses the labels of a table, which itself has a label.
func (p *parser) branchTargets(label string, line int) error {
	s, err := p.until(";")
	if err != nil {
		return err
	}
	p.pos++
	if label == "" || p.scope.tables[label] != nil {
		return p.errorf(line, "%s: a label of its own is missing", s)
	}
	if p.scope.tables == nil {
		p.scope.tables = map[string][]string{}
	}
	p.scope.tables[label] = split(strings.TrimPrefix(s, ".branchtargets"))
	return nil
}

// split splits a list at its commas, except those in braces, brackets and parentheses.
func split(s string) []string {
	var out []string
	depth, from := 0, 0
	for i := range len(s) {
		switch s[i] {
		case '{', '[', '(':
			depth++
		case '}', ']', ')':
			depth--
		case ',':
			if depth == 0 {
				out = append(out, strings.TrimSpace(s[from:i]))
				from = i + 1
			}
		}
	}
	if t := strings.TrimSpace(s[from:]); t != "" {
		out = append(out, t)
	}
	return out
}
