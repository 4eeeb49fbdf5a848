package chat

import (
	"maps"
	"slices"
	"strings"
)

// flow is how a statement ends.
type flow int

const (
	goesOn flow = iota
	breaks
	continues
)

// run is one rendering. It is bounded because templates come with other people's folders,
// and one line can demand more memory or time than there is.
type run struct {
	out    *strings.Builder
	scopes []map[string]any
	// work and calls count what is bounded; depth is the depth of a comparison.
	work         int64
	calls, depth int
}

const (
	// maxWork bounds statements, iterations of loops, expressions, and pieces of
	// workBytes that these read or make; so all values together take less than 128 MiB.
	maxWork   = 4 << 20
	workBytes = 32
	// elementBytes is what an element of a list takes.
	elementBytes = 16
	// maxText bounds the result, in bytes; maxCalls how deep macro calls are nested.
	maxText  = 16 << 20
	maxCalls = 100
)

// spend counts an expression that reads or makes values of the given size. It is called
// before they are made.
func (x *run) spend(bytes int) { x.spendProduct(int64(bytes), 1) }

func (x *run) spendProduct(n, bytes int64) {
	if n > 0 && bytes > maxWork*workBytes/n {
		x.work = maxWork
	}
	if x.work += 1 + n*bytes/workBytes; x.work > maxWork {
		failf(0, "it takes more than %d steps (a step is an expression, a round of a loop or %d bytes of a text): does it come to an end?", maxWork, workBytes)
	}
}

func (x *run) write(s string) {
	x.spend(len(s))
	if x.out.Len()+len(s) > maxText {
		failf(0, "it writes more than %d bytes: does it come to an end?", maxText)
	}
	x.out.WriteString(s)
}

// Render runs the template with variables: strings, bools, int64s, float64s, nil, []any
// and *dict.
func (t *Template) Render(vars map[string]any) (text string, err error) {
	defer caught(&err)
	x := &run{out: new(strings.Builder), scopes: []map[string]any{{
		"raise_exception": builtin("raise_exception"), "namespace": builtin("namespace"), "range": builtin("range"), "dict": builtin("dict"),
	}}}
	maps.Copy(x.scopes[0], vars)
	x.all(t.body)
	return x.out.String(), nil
}

func (x *run) all(body []stmt) flow {
	for _, s := range body {
		x.spend(0)
		if f := s.run(x); f != goesOn {
			return f
		}
	}
	return goesOn
}

// value evaluates an expression.
func (x *run) value(e expr) any {
	x.spend(0)
	return e.eval(x)
}

func (x *run) values(list []expr) []any {
	x.spend(len(list) * elementBytes)
	out := make([]any, len(list))
	for i, e := range list {
		out[i] = x.value(e)
	}
	return out
}

func (x *run) lookup(name string) any {
	for i := len(x.scopes) - 1; i >= 0; i-- {
		if v, ok := x.scopes[i][name]; ok {
			return v
		}
	}
	return undefined{name}
}

// bind assigns names to a value, or to each of its elements.
func (x *run) bind(names []string, v any, line int) {
	scope := x.scopes[len(x.scopes)-1]
	if len(names) == 1 {
		scope[names[0]] = v
		return
	}
	parts := x.list(v, line)
	if len(parts) != len(names) {
		failf(line, "%d names for %d values", len(names), len(parts))
	}
	for i, n := range names {
		scope[n] = parts[i]
	}
}

// captured returns what body writes.
func (x *run) captured(body []stmt) string {
	out := x.out
	defer func() { x.out = out }()
	x.out = new(strings.Builder)
	x.all(body)
	return x.out.String()
}

type text string

func (t text) run(x *run) flow { x.write(string(t)); return goesOn }

type show struct {
	e    expr
	line int
}

func (s show) run(x *run) flow { x.write(shown(x.value(s.e), s.line)); return goesOn }

type jump flow

func (j jump) run(*run) flow { return flow(j) }

type branch struct {
	cond        expr
	then, other []stmt
}

func (s branch) run(x *run) flow {
	if truth(x.value(s.cond)) {
		return x.all(s.then)
	}
	return x.all(s.other)
}

// set names a value, or what body writes.
type set struct {
	names []string
	attr  string // in a namespace, names[0]
	value expr
	body  []stmt
	line  int
}

func (s set) run(x *run) flow {
	var v any
	if s.value != nil {
		v = x.value(s.value)
	} else {
		// Variables set inside do not leave the scope.
		x.scopes = append(x.scopes, map[string]any{})
		v = x.captured(s.body)
		x.scopes = x.scopes[:len(x.scopes)-1]
	}
	if s.attr == "" {
		x.bind(s.names, v, s.line)
		return goesOn
	}
	n, ok := x.lookup(s.names[0]).(*namespace)
	if !ok {
		failf(s.line, "set: %s is no namespace", s.names[0])
	}
	n.m[s.attr] = v
	return goesOn
}

type loop struct {
	names       []string
	over, only  expr
	body, empty []stmt
	line        int
}

func (s loop) run(x *run) flow {
	items := x.list(x.value(s.over), s.line)
	outer := len(x.scopes)
	defer func() { x.scopes = x.scopes[:outer] }()
	if s.only != nil {
		var chosen []any
		for _, v := range items {
			x.scopes = append(x.scopes[:outer], map[string]any{})
			x.bind(s.names, v, s.line)
			if truth(x.value(s.only)) {
				x.spend(elementBytes)
				chosen = append(chosen, v)
			}
		}
		items, x.scopes = chosen, x.scopes[:outer]
	}
	if len(items) == 0 {
		return x.all(s.empty)
	}
	for i, v := range items {
		x.spend(0)
		x.scopes = append(x.scopes[:outer], map[string]any{"loop": &state{i, items}})
		x.bind(s.names, v, s.line)
		if x.all(s.body) == breaks {
			break
		}
	}
	return goesOn
}

// macro is a function that a template defines.
type macro struct {
	name     string
	params   []string
	defaults map[string]expr
	body     []stmt
	line     int
	// scopes are the enclosing scopes, with whatever they hold when the macro is called.
	scopes []map[string]any
}

func (m *macro) run(x *run) flow {
	defined := *m
	defined.scopes = slices.Clone(x.scopes)
	x.scopes[len(x.scopes)-1][m.name] = &defined
	return goesOn
}

func (x *run) macro(m *macro, args []any, named *dict, line int) any {
	if len(args) > len(m.params) {
		failf(line, "%s() takes %d arguments, got %d", m.name, len(m.params), len(args))
	}
	scope := map[string]any{}
	for _, name := range named.keys {
		if i := slices.Index(m.params, name); i < 0 || i < len(args) {
			failf(line, "%s() does not take %s here", m.name, name)
		}
		scope[name] = named.of[name]
	}
	if x.calls++; x.calls > maxCalls {
		failf(line, "more than %d macros call one another", maxCalls)
	}
	scopes := x.scopes
	defer func() { x.scopes, x.calls = scopes, x.calls-1 }()
	x.scopes = append(slices.Clone(m.scopes), scope)
	for i, name := range m.params {
		if i < len(args) {
			scope[name] = args[i]
		} else if _, ok := named.of[name]; !ok {
			if scope[name] = (undefined{name}); m.defaults[name] != nil {
				scope[name] = x.value(m.defaults[name])
			}
		}
	}
	return x.captured(m.body)
}

type constant struct{ v any }

func (c constant) eval(*run) any { return c.v }

type variable struct{ name string }

func (v variable) eval(x *run) any { return x.lookup(v.name) }

type array []expr

func (a array) eval(x *run) any { return x.values(a) }

type object struct {
	keys, values []expr
	line         int
}

func (o object) eval(x *run) any {
	d := newDict()
	for i, e := range o.keys {
		k, ok := x.value(e).(string)
		if !ok {
			failf(o.line, "a key of a mapping is not a text, which is not supported")
		}
		x.spend(2 * elementBytes)
		d.set(k, x.value(o.values[i]))
	}
	return d
}

type choice struct{ then, cond, other expr }

func (c choice) eval(x *run) any {
	switch {
	case truth(x.value(c.cond)):
		return x.value(c.then)
	case c.other != nil:
		return x.value(c.other)
	}
	return undefined{"the else of an inline if"}
}

type logic struct {
	a, b expr
	or   bool
}

func (l logic) eval(x *run) any {
	if v := x.value(l.a); truth(v) == l.or {
		return v
	}
	return x.value(l.b)
}

type negation struct{ e expr }

func (n negation) eval(x *run) any { return !truth(x.value(n.e)) }

// comparison is a chain: a < b < c.
type comparison struct {
	first expr
	ops   []string
	rest  []expr
	line  int
}

func (c comparison) eval(x *run) any {
	a := x.value(c.first)
	for i, op := range c.ops {
		b := x.value(c.rest[i])
		if !x.compare(op, a, b, c.line) {
			return false
		}
		a = b
	}
	return true
}

func (x *run) compare(op string, a, b any, line int) bool {
	switch op {
	case "==":
		return x.equal(a, b)
	case "!=":
		return !x.equal(a, b)
	case "in":
		return x.contains(b, a, line)
	case "not in":
		return !x.contains(b, a, line)
	}
	c, ok := x.compared(a, b)
	if !ok {
		failf(line, "%s does not take %s and %s", op, kind(a), kind(b))
	}
	switch op {
	case "<":
		return c < 0
	case "<=":
		return c <= 0
	case ">":
		return c > 0
	}
	return c >= 0
}

func (x *run) contains(b, a any, line int) bool {
	switch b := b.(type) {
	case string:
		s, ok := a.(string)
		if !ok {
			failf(line, "%s cannot be in a text", kind(a))
		}
		x.spend(len(b))
		return strings.Contains(b, s)
	case *dict:
		s, ok := a.(string)
		_, has := b.of[s]
		return ok && has
	case undefined:
		return false
	}
	return slices.ContainsFunc(x.list(b, line), func(v any) bool { return x.equal(a, v) })
}

type binary struct {
	op   string
	a, b expr
	line int
}

func (e binary) eval(x *run) any {
	a, b := x.value(e.a), x.value(e.b)
	if e.op == "~" {
		return x.concat(shown(a, e.line), shown(b, e.line))
	}
	i, ok1 := whole(a)
	j, ok2 := whole(b)
	s, text1 := a.(string)
	t, text2 := b.(string)
	switch {
	case ok1 && ok2:
		return arithmetic(e.op, i, j, e.line)
	case e.op == "+" && text1 && text2:
		return x.concat(s, t)
	case e.op == "*" && text1 && ok2:
		return x.repeated(s, j)
	case e.op == "*" && ok1 && text2:
		return x.repeated(t, i)
	}
	if l, ok := a.([]any); ok && e.op == "+" {
		if m, ok := b.([]any); ok {
			x.spend((len(l) + len(m)) * elementBytes)
			return slices.Concat(l, m)
		}
	}
	f, ok1 := number(a)
	g, ok2 := number(b)
	switch {
	case !ok1 || !ok2:
		failf(e.line, "%s does not take %s and %s", e.op, kind(a), kind(b))
	case e.op == "+":
		return f + g
	case e.op == "-":
		return f - g
	case e.op == "*":
		return f * g
	}
	failf(e.line, "%s of %s and %s is not supported", e.op, kind(a), kind(b))
	return nil
}

type member struct {
	of, key expr
	line    int
}

func (m member) eval(x *run) any {
	of, key := x.value(m.of), x.value(m.key)
	if u, ok := of.(undefined); ok {
		failf(m.line, "%s is not defined, and has no %s", u.name, spelled(key))
	}
	switch key := key.(type) {
	case string:
		return x.memberOf(of, key, m.line)
	case int64:
		return x.element(of, key, m.line)
	}
	failf(m.line, "%s is no key", kind(key))
	return nil
}

// element returns of[i].
func (x *run) element(of any, i int64, line int) any {
	switch of := of.(type) {
	case []any:
		if i, ok := within(i, len(of)); ok {
			return of[i]
		}
	case string:
		r := x.runes(of)
		if i, ok := within(i, len(r)); ok {
			return string(r[i])
		}
	default:
		failf(line, "%s has no elements", kind(of))
	}
	return undefined{"an element that a list does not have"}
}

// within returns the position of element i of n; a negative i counts from the end.
func within(i int64, n int) (at int64, ok bool) {
	if i < 0 {
		i += int64(n)
	}
	return i, i >= 0 && i < int64(n)
}

func (x *run) runes(s string) []rune {
	x.spendProduct(int64(len(s)), 4)
	return []rune(s)
}

type slice struct {
	of   expr
	ends [3]expr
	line int
}

func (s slice) eval(x *run) any {
	of := x.value(s.of)
	var n int
	var runes []rune
	var items []any
	isText := false
	switch of := of.(type) {
	case string:
		runes, isText = x.runes(of), true
		n = len(runes)
	case []any:
		items, n = of, len(of)
	default:
		failf(s.line, "%s cannot be cut", kind(of))
	}
	end := func(i, otherwise int) int {
		if s.ends[i] == nil {
			return otherwise
		}
		v := x.value(s.ends[i])
		k, ok := v.(int64)
		switch {
		case v == nil:
			return otherwise
		case !ok:
			failf(s.line, "a slice wants whole numbers, got %s", kind(v))
		case i < 2 && k < 0:
			k += int64(n)
		}
		// No step leads out of [-1, n], and none from there is longer than n + 1.
		return int(min(max(k, -int64(n)-1), int64(n)+1))
	}
	step := end(2, 1)
	if step == 0 {
		failf(s.line, "the step of a slice is 0")
	}
	from, to := end(0, 0), end(1, n)
	if step < 0 {
		from, to = end(0, n-1), end(1, -1)
		from, to = min(from, n-1), max(to, -1)
	} else {
		from, to = max(from, 0), min(to, n)
	}
	x.spend(n * elementBytes)
	var text strings.Builder
	out := []any{}
	for i := from; step > 0 && i < to || step < 0 && i > to; i += step {
		if isText {
			text.WriteRune(runes[i])
		} else {
			out = append(out, items[i])
		}
	}
	if isText {
		return text.String()
	}
	return out
}

// arguments are the arguments of a call; the last ones can be named.
type arguments struct {
	list  []expr
	named object
}

func (a arguments) values(x *run) (list []any, named *dict) {
	return x.values(a.list), a.named.eval(x).(*dict)
}

type call struct {
	of expr
	arguments
	line int
}

func (c call) eval(x *run) any {
	of := x.value(c.of)
	args, named := c.values(x)
	switch of := of.(type) {
	case method:
		if len(named.keys) > 0 {
			failf(c.line, "named arguments of %s() are not supported", of.name)
		}
		return x.method(of, args, c.line)
	case *macro:
		return x.macro(of, args, named, c.line)
	case builtin:
		return x.builtin(string(of), args, named, c.line)
	case undefined:
		failf(c.line, "the function %q is not supported", of.name)
	}
	failf(c.line, "%s cannot be called", kind(of))
	return nil
}

func (x *run) builtin(name string, args []any, named *dict, line int) any {
	switch name {
	case "raise_exception":
		failf(line, "the template refuses the conversation: %s", shown(append(args, "")[0], line))
	case "range":
		return x.numbers(args, line)
	}
	if len(args) > 0 {
		failf(line, "%s takes named arguments only", name)
	}
	if name == "namespace" {
		return &namespace{named.of}
	}
	return named
}

// maxRange bounds a range as jinja2's sandbox does.
const maxRange = 100_000

func (x *run) numbers(args []any, line int) []any {
	n := [3]int64{0, 0, 1}
	for i, a := range args {
		v, ok := a.(int64)
		if !ok || i > 2 {
			failf(line, "range wants one to three whole numbers")
		}
		n[i] = v
	}
	switch len(args) {
	case 0:
		failf(line, "range wants one to three whole numbers")
	case 1:
		n[0], n[1] = 0, n[0]
	}
	if n[2] == 0 {
		failf(line, "the step of range is 0")
	}
	out := []any{}
	for i := n[0]; n[2] > 0 && i < n[1] || n[2] < 0 && i > n[1]; i += n[2] {
		if len(out) == maxRange {
			failf(line, "range has more than %d numbers", maxRange)
		}
		x.spend(elementBytes)
		out = append(out, i)
		if n[2] > 0 && i > n[1]-n[2] || n[2] < 0 && i < n[1]-n[2] {
			break // the next is not a number of 64 bits, perhaps
		}
	}
	return out
}
