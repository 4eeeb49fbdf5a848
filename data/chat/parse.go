package chat

import (
	"slices"
	"strconv"
	"strings"
)

// Template is a parsed chat template.
type Template struct{ body []stmt }

// stmt is a part of a template that is executed.
type stmt interface{ run(x *run) flow }

// expr is a part that has a value.
type expr interface{ eval(x *run) any }

// Parse reads a template. A construct that is not supported is an error that names it
// and its line.
func Parse(src string) (t *Template, err error) {
	defer caught(&err)
	p := &parser{parts: split(src)}
	t = &Template{body: p.body(0)}
	return t, nil
}

type parser struct {
	parts []part
	at    int
	loops int
	// macros counts the enclosing macros.
	macros int
	// State of the expression being read.
	line int
	lex  []lexeme
	pos  int
	// nested counts the enclosing open constructs.
	nested int
}

// maxNested bounds how deep expressions and tags are nested.
const maxNested = 200

// nest records that a construct begins; calling end records that it ends.
func (p *parser) nest() (end func()) {
	if p.nested++; p.nested > maxNested {
		failf(p.line, "more than %d levels are nested", maxNested)
	}
	return func() { p.nested-- }
}

// body reads up to one of the tags in ends, which it does not consume; for line 0: up to
// the end.
func (p *parser) body(line int, ends ...string) (out []stmt) {
	for ; p.at < len(p.parts); p.at++ {
		q := p.parts[p.at]
		switch q.kind {
		case 't':
			out = append(out, text(q.text))
		case '{':
			p.begin(q.text, q.line)
			e := p.expr()
			p.end()
			out = append(out, show{e, q.line})
		default:
			p.begin(q.text, q.line)
			tag := p.name()
			if slices.Contains(ends, tag) {
				return out
			}
			out = append(out, p.tag(tag)...)
		}
	}
	if len(ends) > 0 {
		failf(line, "{%% %s %%} is missing", ends[len(ends)-1])
	}
	return out
}

func (p *parser) begin(s string, line int) { p.line, p.lex, p.pos = line, lex(s, line), 0 }

// tag reads a tag and what belongs to it; p.at is then at its last part.
func (p *parser) tag(tag string) []stmt {
	defer p.nest()()
	line := p.line
	switch tag {
	case "if":
		return []stmt{p.ifTag()}
	case "for":
		return []stmt{p.forTag()}
	case "set":
		return []stmt{p.setTag()}
	case "macro":
		return []stmt{p.macroTag()}
	case "generation": // marks answers, which are found without it
		p.end()
		p.at++
		body := p.body(line, "endgeneration")
		p.end()
		return body
	case "break", "continue":
		if p.loops == 0 {
			failf(line, "{%% %s %%} outside of a loop", tag)
		}
		p.end()
		return []stmt{jump(map[string]flow{"break": breaks, "continue": continues}[tag])}
	}
	failf(line, "{%% %s %%} is not supported; want for, if, set, macro, generation, break or continue", tag)
	return nil
}

func (p *parser) ifTag() stmt {
	defer p.nest()()
	line := p.line
	s := branch{cond: p.expr()}
	p.end()
	p.at++
	s.then = p.body(line, "elif", "else", "endif")
	p.pos = 0
	switch p.name() {
	case "elif":
		s.other = []stmt{p.ifTag()}
		return s
	case "else":
		p.end()
		p.at++
		s.other = p.body(line, "endif")
	}
	p.end()
	return s
}

func (p *parser) forTag() stmt {
	s := loop{names: p.names(), line: p.line}
	if w := p.name(); w != "in" {
		failf(p.line, "for: want in, got %q", w)
	}
	s.over = p.or()
	if p.skipName("if") {
		s.only = p.expr()
	}
	if p.peek().text == "recursive" {
		failf(p.line, "{%% for ... recursive %%} is not supported")
	}
	p.end()
	p.at++
	p.loops++
	s.body = p.body(s.line, "else", "endfor")
	p.loops--
	p.pos = 0
	if p.name() == "else" {
		p.end()
		p.at++
		s.empty = p.body(s.line, "endfor")
	}
	p.end()
	return s
}

func (p *parser) setTag() stmt {
	s := set{names: p.names(), line: p.line}
	if len(s.names) == 1 && p.skip(".") {
		s.attr = p.name()
	}
	if p.skip("=") {
		s.value = p.expr()
		if p.skip(",") {
			list, _ := p.list("")
			s.value = array(append([]expr{s.value}, list...))
		}
		p.end()
		return s
	}
	if p.peek().kind != 0 || len(s.names) > 1 {
		failf(p.line, "want {%% set NAME = VALUE %%} or {%% set NAME %%} ... {%% endset %%}")
	}
	p.at++
	defer p.outsideLoops()()
	s.body = p.body(s.line, "endset")
	p.end()
	return s
}

// names reads one or more names.
func (p *parser) names() []string {
	out := []string{p.name()}
	for p.skip(",") {
		out = append(out, p.name())
	}
	return out
}

func (p *parser) macroTag() stmt {
	m := &macro{name: p.name(), defaults: map[string]expr{}, line: p.line}
	p.want("(")
	for !p.skip(")") {
		name := p.name()
		m.params = append(m.params, name)
		if p.skip("=") {
			m.defaults[name] = p.expr()
		} else if len(m.defaults) > 0 {
			failf(p.line, "macro %s: %s has no default, and comes after one that has", m.name, name)
		}
		if !p.skip(",") {
			p.want(")")
			break
		}
	}
	p.end()
	p.at++
	defer p.outsideLoops()()
	p.macros++
	m.body = p.body(m.line, "endmacro")
	p.macros--
	p.end()
	return m
}

// outsideLoops begins a body that break cannot leave; calling end ends it.
func (p *parser) outsideLoops() (end func()) {
	loops := p.loops
	p.loops = 0
	return func() { p.loops = loops }
}

func (p *parser) peek() lexeme { return p.lex[p.pos] }

func (p *parser) next() lexeme {
	l := p.lex[p.pos]
	if l.kind != 0 {
		p.pos++
	}
	return l
}

func (p *parser) end() {
	if l := p.peek(); l.kind != 0 {
		failf(p.line, "%q is not expected here", l.text)
	}
}

func (p *parser) name() string {
	l := p.next()
	if l.kind != 'n' {
		failf(p.line, "want a name, got %q", l.text)
	}
	return l.text
}

// skip passes over an operator, if it is next.
func (p *parser) skip(op string) bool {
	l := p.peek()
	if l.kind != 'o' || l.text != op {
		return false
	}
	p.pos++
	return true
}

func (p *parser) skipName(name string) bool {
	l := p.peek()
	if l.kind != 'n' || l.text != name {
		return false
	}
	p.pos++
	return true
}

func (p *parser) want(op string) {
	if !p.skip(op) {
		failf(p.line, "want %q, got %q", op, p.peek().text)
	}
}

func (p *parser) expr() expr {
	defer p.nest()()
	e := p.or()
	for p.skipName("if") {
		c := choice{then: e, cond: p.or()}
		if p.skipName("else") {
			c.other = p.expr()
		}
		e = c
	}
	return e
}

func (p *parser) or() expr {
	e := p.and()
	for p.skipName("or") {
		e = logic{e, p.and(), true}
	}
	return e
}

func (p *parser) and() expr {
	e := p.not()
	for p.skipName("and") {
		e = logic{e, p.not(), false}
	}
	return e
}

func (p *parser) not() expr {
	defer p.nest()()
	if p.skipName("not") {
		return negation{p.not()}
	}
	return p.compare()
}

func (p *parser) compare() expr {
	c := comparison{first: p.sum(), line: p.line}
	for {
		l := p.peek()
		op := l.text
		switch {
		case l.kind == 'o' && slices.Contains([]string{"==", "!=", "<", "<=", ">", ">="}, op), l.kind == 'n' && op == "in":
			p.pos++
		case l.kind == 'n' && op == "not" && p.lex[p.pos+1].text == "in":
			p.pos += 2
			op = "not in"
		case len(c.ops) == 0:
			return c.first
		default:
			return c
		}
		c.ops, c.rest = append(c.ops, op), append(c.rest, p.sum())
	}
}

// left reads operators that associate to the left.
func (p *parser) left(ops []string, operand func() expr) expr {
	e := operand()
	for l := p.peek(); l.kind == 'o' && slices.Contains(ops, l.text); l = p.peek() {
		p.pos++
		e = binary{l.text, e, operand(), p.line}
	}
	return e
}

func (p *parser) sum() expr {
	return p.left([]string{"+", "-"}, func() expr {
		return p.left([]string{"~"}, func() expr { return p.left([]string{"*", "/", "//", "%"}, p.filtered) })
	})
}

// filtered reads the operand of filters and tests: -x | f is (-x) | f.
func (p *parser) filtered() expr {
	e := p.unary()
	for {
		switch {
		case p.skip("|"):
			e = p.filter(e)
		case p.skipName("is"):
			e = p.test(e)
		case p.skip("("):
			e = p.call(e)
		default:
			return e
		}
	}
}

func (p *parser) unary() expr {
	defer p.nest()()
	if p.skip("-") {
		return binary{"-", constant{int64(0)}, p.unary(), p.line}
	}
	return p.postfix(p.primary())
}

func (p *parser) primary() expr {
	switch l := p.next(); l.kind {
	case 's':
		s := l.text
		for p.peek().kind == 's' { // as in Python, one text
			s += p.next().text
		}
		return constant{s}
	case '0':
		if strings.Contains(l.text, ".") {
			v, _ := strconv.ParseFloat(l.text, 64) // the lexer lets nothing else through
			return constant{v}
		}
		v, err := strconv.ParseInt(l.text, 10, 64)
		if err != nil {
			failf(p.line, "%s is too large", l.text)
		}
		return constant{v}
	case 'n':
		switch l.text {
		case "true", "True":
			return constant{true}
		case "false", "False":
			return constant{false}
		case "none", "None":
			return constant{nil}
		}
		if p.macros > 0 && slices.Contains([]string{"varargs", "kwargs", "caller"}, l.text) {
			failf(p.line, "%s of a macro is not supported", l.text)
		}
		return variable{l.text}
	case 'o':
		switch l.text {
		case "(":
			list, comma := p.list(")")
			if len(list) == 1 && !comma {
				return list[0]
			}
			return array(list)
		case "[":
			list, _ := p.list("]")
			return array(list)
		case "{":
			return p.dict()
		}
		failf(p.line, "%q is not expected here", l.text)
	}
	failf(p.line, "an expression ends too early")
	return nil
}

// list reads expressions up to a closing bracket; without one: up to the end.
func (p *parser) list(closing string) (out []expr, comma bool) {
	for !p.closed(closing) {
		out = append(out, p.expr())
		if comma = p.skip(","); !comma {
			if !p.closed(closing) {
				failf(p.line, "want %q, got %q", closing, p.peek().text)
			}
			break
		}
	}
	return out, comma
}

func (p *parser) closed(by string) bool { return by == "" && p.peek().kind == 0 || p.skip(by) }

func (p *parser) dict() expr {
	d := object{line: p.line}
	for !p.skip("}") {
		k := p.expr()
		p.want(":")
		d.keys, d.values = append(d.keys, k), append(d.values, p.expr())
		if !p.skip(",") {
			p.want("}")
			break
		}
	}
	return d
}

func (p *parser) postfix(e expr) expr {
	for {
		switch {
		case p.skip("."):
			e = member{e, constant{p.name()}, p.line}
		case p.skip("["):
			e = p.subscript(e)
		case p.skip("("):
			e = p.call(e)
		default:
			return e
		}
	}
}

func (p *parser) filter(of expr) expr {
	f := filter{name: p.name(), of: of, line: p.line}
	if _, ok := filters[f.name]; !ok {
		failf(p.line, "the filter %q is not supported; want %s", f.name, strings.Join(filterNames, ", "))
	}
	if p.skip("(") {
		f.arguments = p.arguments()
	}
	return f
}

func (p *parser) test(of expr) expr {
	t := test{of: of, not: p.skipName("not"), line: p.line, name: p.name()}
	n, ok := tests[t.name]
	if !ok {
		failf(p.line, "the test %q is not supported; want %s", t.name, strings.Join(testNames, ", "))
	}
	switch {
	case p.skip("("):
		t.args, _ = p.list(")")
	case n > 0:
		t.args = []expr{p.postfix(p.primary())}
	}
	if len(t.args) != n {
		failf(p.line, "the test %q with %d arguments is not supported", t.name, len(t.args))
	}
	return t
}

func (p *parser) subscript(e expr) expr {
	var ends [3]expr
	n := 0
	for colon := true; ; {
		if p.skip("]") {
			break
		}
		if p.skip(":") {
			if n++; n > 2 {
				failf(p.line, "a slice has three parts at most")
			}
			colon = true
			continue
		}
		if !colon {
			failf(p.line, "want ], got %q", p.peek().text)
		}
		ends[n], colon = p.expr(), false
	}
	if n == 0 {
		if ends[0] == nil {
			failf(p.line, "[] is empty")
		}
		return member{e, ends[0], p.line}
	}
	return slice{e, ends, p.line}
}

func (p *parser) call(of expr) expr { return call{of, p.arguments(), p.line} }

// arguments reads the arguments of a call, up to its end.
func (p *parser) arguments() (a arguments) {
	for !p.skip(")") {
		if l := p.peek(); l.kind == 'n' && p.lex[p.pos+1].text == "=" && p.lex[p.pos+1].kind == 'o' {
			p.pos += 2
			a.named.keys, a.named.values = append(a.named.keys, constant{l.text}), append(a.named.values, p.expr())
		} else if len(a.named.keys) > 0 {
			failf(p.line, "an argument without a name comes after one that has one")
		} else {
			a.list = append(a.list, p.expr())
		}
		if !p.skip(",") {
			p.want(")")
			break
		}
	}
	return a
}
