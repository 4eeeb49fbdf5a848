package dynamo

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"strconv"
	"strings"
	"unicode"

	"github.com/snug-ml/snug/data"
	"github.com/snug-ml/snug/internal/size"
)

// treeVersion changes when the tasks below do.
const treeVersion = "2 "

// goTasks makes five tasks from the Go source tree, which every machine with Go has. They replace those of
// the guide and are of the same kinds:
//
//	sentiment        a message in the code: is it that of an error (0) or not (1)?
//	qa               a question about a function's signature, whose answer is part of it
//	summarization    a function with its comment, but not its name; the name, in words
//	code_generation  the first paragraph of a function's comment; its signature
//	translation      an identifier; its words
func goTasks(ctx context.Context, tree *data.GoTree, log func(string, ...any)) (map[string][]text, error) {
	g := &goReader{out: map[string][]text{}, identifiers: map[string]bool{}}
	unread := 0
	for doc, err := range tree.Documents() {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		g.fset, g.source, g.pkg = token.NewFileSet(), string(doc.Text), path.Dir(doc.ID)
		file, err := parser.ParseFile(g.fset, doc.ID, doc.Text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			unread++ // a newer tree may have syntax unknown to this program
			continue
		}
		g.file(file)
	}
	if unread > 0 {
		log("data: skipping what does not parse of the Go source tree: %s", size.Of(unread, "file"))
	}
	return g.out, nil
}

// goReader collects texts file by file.
type goReader struct {
	fset        *token.FileSet
	source, pkg string
	out         map[string][]text
	identifiers map[string]bool
}

func (g *goReader) add(task string, t text) { g.out[task] = append(g.out[task], t) }

func (g *goReader) where(n ast.Node) string { return g.fset.Position(n.Pos()).String() }

// code returns the source of a node, with single spaces.
func (g *goReader) code(n ast.Node) string {
	from, to := g.fset.Position(n.Pos()).Offset, g.fset.Position(n.End()).Offset
	return strings.Join(strings.Fields(g.source[from:to]), " ")
}

func (g *goReader) file(f *ast.File) {
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok {
			g.function(fn)
		}
	}
	failures := map[*ast.BasicLit]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.CallExpr:
			if len(n.Args) > 0 && raises(n.Fun) {
				if lit, ok := n.Args[0].(*ast.BasicLit); ok {
					failures[lit] = true
				}
			}
		case *ast.BasicLit:
			g.message(n, failures[n])
		case *ast.Ident:
			g.identifier(n)
		}
		return true
	})
}

// raises reports whether a called function makes an error of its first argument.
func raises(f ast.Expr) bool {
	switch f := f.(type) {
	case *ast.Ident:
		return f.Name == "panic"
	case *ast.SelectorExpr:
		x, ok := f.X.(*ast.Ident)
		return ok && (x.Name == "errors" && f.Sel.Name == "New" || x.Name == "fmt" && f.Sel.Name == "Errorf")
	}
	return false
}

// message adds a string literal of a few words.
func (g *goReader) message(lit *ast.BasicLit, failure bool) {
	if lit.Kind != token.STRING {
		return
	}
	s, err := strconv.Unquote(lit.Value)
	if err != nil || len(s) < 12 || len(s) > 120 || strings.ContainsAny(s, "\n\t\x00") || len(strings.Fields(s)) < 3 {
		return
	}
	label := 1
	if failure {
		label = 0
	}
	g.add(nameSentiment, text{Input: s, Label: label, Where: g.where(lit), Group: s})
}

// identifier adds a name of two words or more.
func (g *goReader) identifier(n *ast.Ident) {
	if g.identifiers[n.Name] {
		return
	}
	g.identifiers[n.Name] = true
	if w := splitName(n.Name); len(w) >= 2 && len(n.Name) <= 40 {
		g.add(nameTranslation, text{Input: n.Name, Output: strings.Join(w, " "), Where: g.where(n), Group: n.Name})
	}
}

// splitName returns the words of an identifier in lower case, or nil if it has characters other than letters
// and digits. The words of "parseHTTPVersion2" are parse, http, version, 2.
func splitName(name string) []string {
	var words []string
	r := []rune(name)
	class := func(c rune) int {
		switch {
		case c > unicode.MaxASCII:
			return -1
		case unicode.IsUpper(c):
			return 2
		case unicode.IsLower(c):
			return 1
		case unicode.IsDigit(c):
			return 0
		}
		return -1
	}
	from := 0
	for i := range r {
		c := class(r[i])
		if c < 0 {
			return nil
		}
		if i == 0 {
			continue
		}
		before := class(r[i-1])
		next := -1
		if i+1 < len(r) {
			next = class(r[i+1])
		}
		// A word starts at a capital after a character of another class, at the last of several capitals
		// before a small letter, and where digits start or end.
		if c != before && !(before == 2 && c == 1) || c == 2 && before == 2 && next == 1 {
			words = append(words, strings.ToLower(string(r[from:i])))
			from = i
		}
	}
	return append(words, strings.ToLower(string(r[from:])))
}

// span is a part of a signature.
type span struct{ start, end int }

// signature is a function's signature on one line, with the positions of its parts.
type signature struct {
	text     string
	open     int  // start of the parameters
	receiver span // type of the receiver
	result   span
	params   []param
}

type param struct{ name, kind span }

func (s *signature) at(p span) string { return s.text[p.start:p.end] }

func (g *goReader) signature(f *ast.FuncDecl) *signature {
	s := &signature{}
	var b strings.Builder
	put := func(x string) span {
		from := b.Len()
		b.WriteString(x)
		return span{from, b.Len()}
	}
	put("func ")
	if f.Recv != nil && len(f.Recv.List) == 1 {
		put("(")
		if len(f.Recv.List[0].Names) == 1 {
			put(f.Recv.List[0].Names[0].Name + " ")
		}
		s.receiver = put(g.code(f.Recv.List[0].Type))
		put(") ")
	}
	put(f.Name.Name)
	if f.Type.TypeParams != nil {
		put(g.code(f.Type.TypeParams))
	}
	s.open = b.Len()
	put("(")
	for i, field := range f.Type.Params.List {
		if i > 0 {
			put(", ")
		}
		var names []span
		for k, n := range field.Names {
			if k > 0 {
				put(", ")
			}
			names = append(names, put(n.Name))
		}
		if len(names) > 0 {
			put(" ")
		}
		kind := put(g.code(field.Type))
		for _, n := range names {
			s.params = append(s.params, param{n, kind})
		}
	}
	put(")")
	if f.Type.Results != nil {
		put(" ")
		s.result = put(g.code(f.Type.Results))
	}
	s.text = b.String()
	return s
}

func (g *goReader) function(f *ast.FuncDecl) {
	s := g.signature(f)
	if len(s.text) > 200 {
		return
	}
	where := g.where(f)
	g.questions(f.Name.Name, s, where)
	doc, _, _ := strings.Cut(strings.TrimSpace(f.Doc.Text()), "\n\n")
	doc = strings.Join(strings.Fields(doc), " ")
	if len(doc) < 20 || len(doc) > 300 {
		return
	}
	if len(s.text) <= 120 {
		g.add(nameCodeGeneration, text{Input: doc, Output: s.text, Where: where, Group: g.pkg})
	}
	name := f.Name.Name
	if rest, ok := strings.CutPrefix(doc, name+" "); ok && f.Body != nil {
		if words := splitName(name); len(words) > 0 {
			input := strings.ReplaceAll(fmt.Sprintf("// %s func%s %s", rest, s.text[s.open:], g.code(f.Body)), name, "_")
			g.add(nameSummarization, text{Input: strings.ToValidUTF8(input[:min(len(input), 500)], ""), Output: strings.Join(words, " "), Where: where, Group: g.pkg})
		}
	}
}

// questions asks for the parts of a signature.
func (g *goReader) questions(name string, s *signature, where string) {
	ask := func(question string, answer span) {
		if answer.end > answer.start {
			g.add(nameQA, text{Question: question, Input: s.text, Output: s.at(answer), Start: answer.start, Where: where, Group: g.pkg})
		}
	}
	ask(fmt.Sprintf("What does %s return?", name), s.result)
	ask(fmt.Sprintf("Which type has the method %s?", name), s.receiver)
	for i, p := range s.params {
		ask(fmt.Sprintf("What is the type of %s?", s.at(p.name)), p.kind)
		switch i {
		case 0:
			ask(fmt.Sprintf("What is the first parameter of %s?", name), p.name)
		case 1:
			ask(fmt.Sprintf("What is the second parameter of %s?", name), p.name)
		}
	}
}
