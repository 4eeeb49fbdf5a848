package moderation

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"strings"

	"github.com/snug-ml/snug/data"
	"github.com/snug-ml/snug/internal/size"
)

// leastComment is the length in bytes below which a doc comment is too short to reveal its package.
const leastComment = 20

// docComments turns the doc comments of the Go standard library into a moderation task available on every
// machine with Go: comments in packages below crypto and net are to be flagged. About one in five is, as with
// comments by people.
func docComments(ctx context.Context, log func(string, ...any)) ([]sample, error) {
	tree, err := data.OpenGoTree(data.GoTreeOptions{})
	if err != nil {
		return nil, err
	}
	var out []sample
	unread := 0
	for doc, err := range tree.Documents() {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, doc.ID, doc.Text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			unread++ // a newer tree may have syntax unknown to this program
			continue
		}
		dir := path.Dir(doc.ID)
		for _, d := range file.Decls {
			var c *ast.CommentGroup
			switch d := d.(type) {
			case *ast.FuncDecl:
				c = d.Doc
			case *ast.GenDecl:
				c = d.Doc
			}
			if text := strings.TrimSpace(c.Text()); len(text) >= leastComment {
				out = append(out, sample{text, flaggedPackage(dir), fset.Position(d.Pos()).String(), dir})
			}
		}
	}
	if unread > 0 {
		log("data: skipping what does not parse of the Go source tree: %s", size.Of(unread, "file"))
	}
	return out, nil
}

// flaggedPackage reports whether comments of a package are to be flagged.
func flaggedPackage(dir string) bool {
	top, _, _ := strings.Cut(dir, "/")
	return top == "crypto" || top == "net"
}
