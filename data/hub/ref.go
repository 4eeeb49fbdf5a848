package hub

import (
	"fmt"
	"net/url"
	"path"
	"regexp"
	"strings"
)

// Scheme begins the URLs of this package.
const Scheme = "hf://"

// Kind is what a repository of the hub contains.
type Kind string

// The kinds, as in URLs and in the names of cache folders.
const (
	Model   Kind = "models"
	Dataset Kind = "datasets"
)

// DefaultRevision is the branch that a Ref without revision means.
const DefaultRevision = "main"

// Ref names a repository of the hub at a revision, and files in it.
type Ref struct {
	Kind Kind
	// ID is "owner/name", or "name" alone for the hub's oldest repositories.
	ID string
	// Revision is a branch, a tag, a commit or a ref such as "refs/pr/1".
	Revision string
	// Path, when set, selects files: a file, a folder, or a pattern in which *
	// and ? stand within one folder's names and ** for any folders.
	Path string
}

var (
	idPart  = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,95}$`)
	refPart = regexp.MustCompile(`^refs/(convert|pr)/[^/]+`)
	commit  = regexp.MustCompile(`^[0-9a-f]{40}$`)
)

// ParseURL reads hf://[models/|datasets/]ID[@REVISION][/PATH]; without a kind
// it is a model. A revision with a slash is written with %2F, except for
// refs/pr/N and refs/convert/NAME.
func ParseURL(s string) (Ref, error) {
	r := Ref{Kind: Model, Revision: DefaultRevision}
	fail := func(format string, args ...any) (Ref, error) {
		return Ref{}, fmt.Errorf("%s: %s: want hf://[models/|datasets/]OWNER/NAME[@REVISION][/PATH]", s, fmt.Sprintf(format, args...))
	}
	rest, ok := strings.CutPrefix(s, Scheme)
	if !ok {
		return fail("does not begin with %s", Scheme)
	}
	for _, kind := range []Kind{Model, Dataset} {
		if after, ok := strings.CutPrefix(rest, string(kind)+"/"); ok {
			r.Kind, rest = kind, after
			break
		}
	}
	if strings.HasPrefix(rest, "spaces/") {
		return fail("spaces are programs, not models or datasets")
	}
	id, after, versioned := strings.Cut(rest, "@")
	if versioned {
		if ref := refPart.FindString(after); ref != "" {
			r.Revision, r.Path = ref, strings.TrimPrefix(after[len(ref):], "/")
		} else {
			r.Revision, r.Path, _ = strings.Cut(after, "/")
			unescaped, err := url.PathUnescape(r.Revision)
			if err != nil {
				return fail("revision: %v", err)
			}
			r.Revision = unescaped
		}
	} else {
		parts := strings.SplitN(rest, "/", 3)
		id = strings.Join(parts[:min(2, len(parts))], "/")
		if len(parts) == 3 {
			r.Path = parts[2]
		}
	}
	r.ID = strings.TrimSuffix(id, "/")
	r.Path = strings.TrimSuffix(r.Path, "/")
	if err := r.check(); err != nil {
		return fail("%v", err)
	}
	return r, nil
}

// String is the URL of the ref.
func (r Ref) String() string {
	s := Scheme + string(r.Kind) + "/" + r.ID
	// Without a revision, whatever follows a name without an owner would be taken for the
	// name.
	if r.Revision != DefaultRevision || r.Path != "" && !strings.Contains(r.ID, "/") {
		rev := r.Revision
		if refPart.FindString(rev) != rev {
			rev = url.PathEscape(rev)
		}
		s += "@" + rev
	}
	if r.Path != "" {
		s += "/" + r.Path
	}
	return s
}

func (r Ref) check() error {
	if r.Kind != Model && r.Kind != Dataset {
		return fmt.Errorf("unknown kind %q", r.Kind)
	}
	parts := strings.Split(r.ID, "/")
	if len(parts) > 2 {
		return fmt.Errorf("the repository %q has more than two parts", r.ID)
	}
	for _, p := range parts {
		if !idPart.MatchString(p) || strings.Contains(p, "..") || strings.Contains(p, "--") || strings.HasSuffix(p, ".git") {
			return fmt.Errorf("%q is not the name of a repository", r.ID)
		}
	}
	if err := safePath(r.Revision); err != nil {
		return fmt.Errorf("revision %q %w", r.Revision, err)
	}
	if r.Path == "" {
		return nil
	}
	if err := safePath(r.Path); err != nil {
		return fmt.Errorf("path %q %w", r.Path, err)
	}
	for p := range strings.SplitSeq(r.Path, "/") {
		if _, err := path.Match(p, ""); err != nil {
			return fmt.Errorf("path %q: %w", r.Path, err)
		}
	}
	return nil
}

// Match reports whether the ref's path selects a file of the repository.
func (r Ref) Match(name string) bool {
	if r.Path == "" || name == r.Path || strings.HasPrefix(name, r.Path+"/") {
		return true
	}
	return match(strings.Split(r.Path, "/"), strings.Split(name, "/"))
}

// match compares a pattern with a name, folder by folder.
func match(pattern, name []string) bool {
	if len(pattern) == 0 {
		return len(name) == 0
	}
	if pattern[0] == "**" {
		for skip := range len(name) + 1 {
			if match(pattern[1:], name[skip:]) {
				return true
			}
		}
		return false
	}
	if len(name) == 0 {
		return false
	}
	ok, err := path.Match(pattern[0], name[0])
	return err == nil && ok && match(pattern[1:], name[1:])
}
