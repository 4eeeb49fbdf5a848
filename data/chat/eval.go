package chat

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Values of expressions are nil (none), undefined, bool, int64, float64, string, []any,
// map[string]any, *namespace, *state (of a loop), bound (a method) and builtin.
type (
	undefined struct{ name string }
	namespace struct{ m map[string]any }
	bound     struct {
		of   any
		name string
	}
	builtin string
	state   struct {
		index, length int
		items         []any
	}
)

// flow is how a statement ends.
type flow int

const (
	goesOn flow = iota
	breaks
	continues
)

// run is one rendering.
type run struct {
	out    strings.Builder
	scopes []map[string]any
	steps  int
}

// maxSteps bounds a rendering, in statements; maxText its length, in bytes.
const (
	maxSteps = 10_000_000
	maxText  = 64 << 20
)

// Render runs the template with variables: strings, bools, int64s, float64s, nil, []any
// and map[string]any.
func (t *Template) Render(vars map[string]any) (text string, err error) {
	defer caught(&err)
	x := &run{scopes: []map[string]any{{
		"raise_exception": builtin("raise_exception"), "namespace": builtin("namespace"), "range": builtin("range"), "dict": builtin("dict"),
	}}}
	maps.Copy(x.scopes[0], vars)
	x.all(t.body)
	return x.out.String(), nil
}

func (x *run) all(body []stmt) flow {
	for _, s := range body {
		if x.steps++; x.steps > maxSteps || x.out.Len() > maxText {
			failf(0, "it runs more than %d statements or writes more than %d bytes: does it come to an end?", maxSteps, maxText)
		}
		if f := s.run(x); f != goesOn {
			return f
		}
	}
	return goesOn
}

func (x *run) lookup(name string) any {
	for i := len(x.scopes) - 1; i >= 0; i-- {
		if v, ok := x.scopes[i][name]; ok {
			return v
		}
	}
	return undefined{name}
}

type text string

func (t text) run(x *run) flow { x.out.WriteString(string(t)); return goesOn }

type show struct {
	e    expr
	line int
}

func (s show) run(x *run) flow { x.out.WriteString(shown(s.e.eval(x), s.line)); return goesOn }

type jump flow

func (j jump) run(*run) flow { return flow(j) }

type branch struct {
	cond        expr
	then, other []stmt
}

func (s branch) run(x *run) flow {
	if truth(s.cond.eval(x)) {
		return x.all(s.then)
	}
	return x.all(s.other)
}

type set struct {
	name, attr string
	value      expr
	line       int
}

func (s set) run(x *run) flow {
	v := s.value.eval(x)
	if s.attr == "" {
		x.scopes[len(x.scopes)-1][s.name] = v
		return goesOn
	}
	n, ok := x.lookup(s.name).(*namespace)
	if !ok {
		failf(s.line, "set: %s is no namespace", s.name)
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
	items := list(s.over.eval(x), s.line)
	bind := func(v any) {
		scope := x.scopes[len(x.scopes)-1]
		if len(s.names) == 1 {
			scope[s.names[0]] = v
			return
		}
		parts := list(v, s.line)
		if len(parts) != len(s.names) {
			failf(s.line, "for: %d names for %d values", len(s.names), len(parts))
		}
		for i, n := range s.names {
			scope[n] = parts[i]
		}
	}
	defer func(n int) { x.scopes = x.scopes[:n] }(len(x.scopes))
	if s.only != nil {
		x.scopes = append(x.scopes, map[string]any{})
		items = slices.DeleteFunc(slices.Clone(items), func(v any) bool { bind(v); return !truth(s.only.eval(x)) })
		x.scopes = x.scopes[:len(x.scopes)-1]
	}
	if len(items) == 0 {
		return x.all(s.empty)
	}
	outer := len(x.scopes)
	for i, v := range items {
		x.scopes = append(x.scopes[:outer], map[string]any{"loop": &state{i, len(items), items}})
		bind(v)
		if x.all(s.body) == breaks {
			break
		}
	}
	return goesOn
}

type constant struct{ v any }

func (c constant) eval(*run) any { return c.v }

type variable struct{ name string }

func (v variable) eval(x *run) any { return x.lookup(v.name) }

type array []expr

func (a array) eval(x *run) any {
	out := make([]any, len(a))
	for i, e := range a {
		out[i] = e.eval(x)
	}
	return out
}

type object struct{ keys, values []expr }

func (o object) eval(x *run) any {
	out := map[string]any{}
	for i, k := range o.keys {
		out[fmt.Sprint(k.eval(x))] = o.values[i].eval(x)
	}
	return out
}

type choice struct {
	then, cond, other expr
	line              int
}

func (c choice) eval(x *run) any {
	switch {
	case truth(c.cond.eval(x)):
		return c.then.eval(x)
	case c.other != nil:
		return c.other.eval(x)
	}
	return undefined{"the else of an inline if"}
}

type logic struct {
	a, b expr
	or   bool
}

func (l logic) eval(x *run) any {
	if v := l.a.eval(x); truth(v) == l.or {
		return v
	}
	return l.b.eval(x)
}

type negation struct{ e expr }

func (n negation) eval(x *run) any { return !truth(n.e.eval(x)) }

type binary struct {
	op   string
	a, b expr
	line int
}

func (e binary) eval(x *run) any {
	a, b := e.a.eval(x), e.b.eval(x)
	switch e.op {
	case "==":
		return equal(a, b)
	case "!=":
		return !equal(a, b)
	case "in", "not in":
		return within(a, b, e.line) == (e.op == "in")
	case "~":
		return shown(a, e.line) + shown(b, e.line)
	}
	if s, ok := a.(string); ok {
		t, ok := b.(string)
		switch {
		case ok && e.op == "+":
			return s + t
		case ok && slices.Contains([]string{"<", "<=", ">", ">="}, e.op):
			return ordered(e.op, strings.Compare(s, t))
		}
	}
	if l, ok := a.([]any); ok && e.op == "+" {
		if m, ok := b.([]any); ok {
			return slices.Concat(l, m)
		}
	}
	i, ok1 := a.(int64)
	j, ok2 := b.(int64)
	if ok1 && ok2 {
		return e.whole(i, j)
	}
	f, ok1 := number(a)
	g, ok2 := number(b)
	if !ok1 || !ok2 {
		failf(e.line, "%s does not take %s and %s", e.op, kind(a), kind(b))
	}
	switch e.op {
	case "+":
		return f + g
	case "-":
		return f - g
	case "*":
		return f * g
	case "/", "//", "%":
		failf(e.line, "%s of %s and %s is not supported", e.op, kind(a), kind(b))
	}
	return ordered(e.op, cmpFloat(f, g))
}

func cmpFloat(f, g float64) int {
	switch {
	case f < g:
		return -1
	case f > g:
		return 1
	}
	return 0
}

func ordered(op string, c int) bool {
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

func (e binary) whole(i, j int64) any {
	if j == 0 && (e.op == "/" || e.op == "//" || e.op == "%") {
		failf(e.line, "division by zero")
	}
	switch e.op {
	case "+":
		return i + j
	case "-":
		return i - j
	case "*":
		return i * j
	case "/":
		return float64(i) / float64(j)
	case "//":
		return int64(math.Floor(float64(i) / float64(j)))
	case "%":
		return ((i % j) + j) % j
	}
	return ordered(e.op, cmpFloat(float64(i), float64(j)))
}

type member struct {
	of, key expr
	line    int
}

func (m member) eval(x *run) any {
	of, key := m.of.eval(x), m.key.eval(x)
	if u, ok := of.(undefined); ok {
		failf(m.line, "%s is not defined, and has no %v", u.name, key)
	}
	if i, ok := key.(int64); ok {
		var n int
		var at func(i int) any
		switch of := of.(type) {
		case []any:
			n, at = len(of), func(i int) any { return of[i] }
		case string:
			r := []rune(of)
			n, at = len(r), func(i int) any { return string(r[i]) }
		default:
			failf(m.line, "%s has no elements", kind(of))
		}
		if i < 0 {
			i += int64(n)
		}
		if i < 0 || i >= int64(n) {
			return undefined{fmt.Sprintf("element %v", key)}
		}
		return at(int(i))
	}
	name, ok := key.(string)
	if !ok {
		failf(m.line, "%s is no key", kind(key))
	}
	switch of := of.(type) {
	case map[string]any:
		if v, ok := of[name]; ok {
			return v
		}
	case *namespace:
		if v, ok := of.m[name]; ok {
			return v
		}
		return undefined{name}
	case *state:
		return of.member(name)
	}
	if slices.Contains(methodsOf(of), name) {
		return bound{of, name}
	}
	return undefined{name}
}

// member is what a template reads of its loop.
func (s *state) member(name string) any {
	switch name {
	case "index":
		return int64(s.index + 1)
	case "index0":
		return int64(s.index)
	case "revindex":
		return int64(s.length - s.index)
	case "revindex0":
		return int64(s.length - s.index - 1)
	case "length":
		return int64(s.length)
	case "first":
		return s.index == 0
	case "last":
		return s.index == s.length-1
	case "previtem":
		if s.index > 0 {
			return s.items[s.index-1]
		}
	case "nextitem":
		if s.index+1 < s.length {
			return s.items[s.index+1]
		}
	}
	return undefined{"loop." + name}
}

type slice struct {
	of   expr
	ends [3]expr
	line int
}

func (s slice) eval(x *run) any {
	of := s.of.eval(x)
	n, isText := 0, false
	var runes []rune
	var items []any
	switch of := of.(type) {
	case string:
		runes, isText = []rune(of), true
		n = len(runes)
	case []any:
		items, n = of, len(of)
	default:
		failf(s.line, "%s cannot be cut", kind(of))
	}
	at := func(i, otherwise int) int {
		if s.ends[i] == nil {
			return otherwise
		}
		v := s.ends[i].eval(x)
		k, ok := v.(int64)
		switch {
		case v == nil:
			return otherwise
		case !ok:
			failf(s.line, "a slice wants whole numbers, got %s", kind(v))
		case i == 2:
			return int(k)
		case k < 0:
			k += int64(n)
		}
		return int(k)
	}
	step := at(2, 1)
	if step == 0 {
		failf(s.line, "the step of a slice is 0")
	}
	from, to := at(0, 0), at(1, n)
	if step < 0 {
		from, to = at(0, n-1), at(1, -1)
		from, to = min(from, n-1), max(to, -1)
	} else {
		from, to = max(from, 0), min(to, n)
	}
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

type call struct {
	of    expr
	args  []expr
	named map[string]expr
	line  int
}

func (c call) eval(x *run) any {
	of := c.of.eval(x)
	args := make([]any, len(c.args))
	for i, a := range c.args {
		args[i] = a.eval(x)
	}
	switch of := of.(type) {
	case bound:
		if len(c.named) > 0 {
			failf(c.line, "%s() takes no named arguments", of.name)
		}
		return of.call(args, c.line)
	case builtin:
		return x.builtin(string(of), args, c)
	case undefined:
		failf(c.line, "the function %q is not supported", of.name)
	}
	failf(c.line, "%s cannot be called", kind(of))
	return nil
}

func (x *run) builtin(name string, args []any, c call) any {
	switch name {
	case "raise_exception":
		failf(c.line, "the template refuses the conversation: %s", shown(append(args, "")[0], c.line))
	case "range":
		var n [3]int64
		n[2] = 1
		for i, a := range args {
			v, ok := a.(int64)
			if !ok || i > 2 {
				failf(c.line, "range wants one to three whole numbers")
			}
			n[i] = v
		}
		if len(args) == 1 {
			n[0], n[1] = 0, n[0]
		}
		out := []any{}
		for i := n[0]; (n[2] > 0 && i < n[1] || n[2] < 0 && i > n[1]) && len(out) < maxSteps; i += n[2] {
			out = append(out, i)
		}
		return out
	}
	m := map[string]any{}
	for k, e := range c.named {
		m[k] = e.eval(x)
	}
	if len(args) > 0 {
		failf(c.line, "%s takes named arguments only", name)
	}
	if name == "namespace" {
		return &namespace{m}
	}
	return m
}

func methodsOf(v any) []string {
	switch v.(type) {
	case string:
		return []string{"strip", "lstrip", "rstrip", "split", "startswith", "endswith", "upper", "lower", "title", "capitalize", "replace", "find", "count", "join"}
	case map[string]any:
		return []string{"items", "keys", "values", "get"}
	}
	return nil
}

func (m bound) call(args []any, line int) any {
	texts := make([]string, len(args))
	for i, a := range args {
		texts[i], _ = a.(string)
	}
	few := func(least, most int) {
		if len(args) < least || len(args) > most {
			failf(line, "%s() does not take %d arguments", m.name, len(args))
		}
	}
	if of, ok := m.of.(map[string]any); ok {
		switch m.name {
		case "get":
			few(1, 2)
			if v, ok := of[texts[0]]; ok {
				return v
			}
			if len(args) == 2 {
				return args[1]
			}
			return nil
		}
		few(0, 0)
		return entries(of, m.name)
	}
	s := m.of.(string) // methodsOf has no others
	trimmed := func(trim func(string, string) string, space func(string, func(rune) bool) string) string {
		few(0, 1)
		if len(args) == 1 && args[0] != nil {
			return trim(s, texts[0])
		}
		return space(s, unicode.IsSpace)
	}
	switch m.name {
	case "strip":
		return trimmed(strings.Trim, strings.TrimFunc)
	case "lstrip":
		return trimmed(strings.TrimLeft, strings.TrimLeftFunc)
	case "rstrip":
		return trimmed(strings.TrimRight, strings.TrimRightFunc)
	case "split":
		few(0, 2)
		if len(args) == 0 {
			return anys(strings.Fields(s))
		}
		n := int64(-1)
		if len(args) == 2 {
			n, _ = args[1].(int64)
		}
		if texts[0] == "" {
			failf(line, "split() wants a text to split at")
		}
		if n >= 0 {
			n++ // Python counts cuts, Go parts
		}
		return anys(strings.SplitN(s, texts[0], int(n)))
	case "startswith", "endswith":
		few(1, 1)
		options := args
		if l, ok := args[0].([]any); ok {
			options = l
		}
		return slices.ContainsFunc(options, func(o any) bool {
			t, ok := o.(string)
			return ok && (m.name == "startswith" && strings.HasPrefix(s, t) || m.name == "endswith" && strings.HasSuffix(s, t))
		})
	case "replace":
		few(2, 2)
		return strings.ReplaceAll(s, texts[0], texts[1])
	case "find":
		few(1, 1)
		i := strings.Index(s, texts[0])
		if i < 0 {
			return int64(i)
		}
		return int64(utf8.RuneCountInString(s[:i]))
	case "count":
		few(1, 1)
		return int64(strings.Count(s, texts[0]))
	case "join":
		few(1, 1)
		return joined(args[0], s, line)
	}
	few(0, 0)
	return cased(m.name, s)
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// cased is s in another case.
func cased(how, s string) string {
	switch how {
	case "upper":
		return strings.ToUpper(s)
	case "lower":
		return strings.ToLower(s)
	}
	var b strings.Builder
	inside := false
	for _, r := range s {
		if inside {
			b.WriteRune(unicode.ToLower(r))
		} else {
			b.WriteRune(unicode.ToTitle(r))
		}
		inside = how == "capitalize" || unicode.IsLetter(r)
	}
	return b.String()
}

func anys(texts []string) []any {
	out := make([]any, len(texts))
	for i, t := range texts {
		out[i] = t
	}
	return out
}

// entries are the items, keys or values of a map, by name: JSON has no order of them
// here.
func entries(m map[string]any, which string) []any {
	out := []any{}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		switch which {
		case "keys":
			out = append(out, k)
		case "values":
			out = append(out, m[k])
		default:
			out = append(out, []any{k, m[k]})
		}
	}
	return out
}

func joined(v any, with string, line int) string {
	var texts []string
	for _, x := range list(v, line) {
		texts = append(texts, shown(x, line))
	}
	return strings.Join(texts, with)
}

// list are the elements that a loop goes over.
func list(v any, line int) []any {
	switch v := v.(type) {
	case []any:
		return v
	case map[string]any:
		return entries(v, "keys")
	case string:
		out := []any{}
		for _, r := range v {
			out = append(out, string(r))
		}
		return out
	case undefined:
		failf(line, "%s is not defined", v.name)
	}
	failf(line, "%s is no list", kind(v))
	return nil
}

func truth(v any) bool {
	switch v := v.(type) {
	case nil, undefined:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case float64:
		return v != 0
	case string:
		return v != ""
	case []any:
		return len(v) > 0
	case map[string]any:
		return len(v) > 0
	}
	return true
}

func number(v any) (float64, bool) {
	switch v := v.(type) {
	case int64:
		return float64(v), true
	case float64:
		return v, true
	case bool:
		return float64(btoi(v)), true
	}
	return 0, false
}

func equal(a, b any) bool {
	if f, ok := number(a); ok {
		g, ok := number(b)
		return ok && f == g
	}
	switch a := a.(type) {
	case string:
		s, ok := b.(string)
		return ok && a == s
	case []any:
		l, ok := b.([]any)
		return ok && slices.EqualFunc(a, l, equal)
	case map[string]any:
		m, ok := b.(map[string]any)
		return ok && maps.EqualFunc(a, m, equal)
	case nil:
		return b == nil
	case undefined:
		_, ok := b.(undefined)
		return ok
	}
	n, ok := a.(*namespace)
	return ok && b == any(n)
}

func within(a, b any, line int) bool {
	switch b := b.(type) {
	case string:
		s, ok := a.(string)
		if !ok {
			failf(line, "%s cannot be in a text", kind(a))
		}
		return strings.Contains(b, s)
	case map[string]any:
		s, ok := a.(string)
		_, has := b[s]
		return ok && has
	}
	return slices.ContainsFunc(list(b, line), func(v any) bool { return equal(a, v) })
}

// shown is a value as text, as Python prints it.
func shown(v any, line int) string {
	switch v := v.(type) {
	case string:
		return v
	case undefined:
		return ""
	case nil:
		return "None"
	case bool:
		return map[bool]string{true: "True", false: "False"}[v]
	case int64:
		return strconv.FormatInt(v, 10)
	}
	failf(line, "%s is printed, which is not supported: want a text, a whole number, true, false or none", kind(v))
	return ""
}

// kind is what a value is, for messages.
func kind(v any) string {
	switch v := v.(type) {
	case nil:
		return "none"
	case undefined:
		return v.name + ", which is not defined,"
	case bool:
		return "true or false"
	case int64, float64:
		return "a number"
	case string:
		return "a text"
	case []any:
		return "a list"
	case map[string]any, *namespace:
		return "a mapping"
	}
	return "a function"
}
