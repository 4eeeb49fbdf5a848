package web

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"net"
	"net/http"
	"path"
	"strings"
	"sync/atomic"
	"time"

	"github.com/snug-ml/snug/internal/access"
)

// Options say what is shown, and to whom.
type Options struct {
	// Runs are run directories, or folders of them. One that does not exist yet is shown
	// as soon as it does.
	Runs []string
	// Token, when set, must come with every request: as "Authorization: Bearer
	// TOKEN", or by the cookie that the page's form sets. Without one, requests
	// must be for this machine.
	Token string
	// Interval is the time between looks at the runs; 0: a second.
	Interval time.Duration
	// Now is the clock; nil: the machine's.
	Now func() time.Time
}

// Server shows runs.
type Server struct {
	opt    Options
	hub    *hub
	mux    *http.ServeMux
	pages  atomic.Int32
	ending chan struct{} // closed when pages must disconnect
}

//go:embed static
var files embed.FS

//go:embed login.html
var loginText string

var loginPage = template.Must(template.New("login").Parse(loginText))

// New opens the runs.
func New(opt Options) *Server {
	if opt.Interval <= 0 {
		opt.Interval = time.Second
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	s := &Server{opt: opt, hub: newHub(opt.Runs, opt.Now), mux: http.NewServeMux(), ending: make(chan struct{})}
	s.mux.HandleFunc("GET /{$}", s.file)
	s.mux.HandleFunc("GET /static/", s.file)
	s.mux.HandleFunc("GET /events", s.events)
	s.mux.HandleFunc("GET /series", s.series)
	s.mux.HandleFunc("GET /metrics", s.metrics)
	s.mux.HandleFunc("GET /report/{id}/{name...}", s.report)
	s.mux.HandleFunc("POST /login", s.login)
	return s
}

// Missing says why requested runs cannot be shown yet.
func (s *Server) Missing() (why []string) {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	for _, path := range s.hub.paths {
		if text := s.hub.failed[path]; text != "" {
			why = append(why, text)
		}
	}
	return why
}

// Run shows the runs on l until ctx ends.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	h := &http.Server{Handler: s, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10}
	following, stop := context.WithCancel(ctx)
	defer stop()
	go s.hub.follow(following, s.opt.Interval)
	failed := make(chan error, 1)
	go func() { failed <- h.Serve(l) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	close(s.ending)
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if err := h.Shutdown(grace); err != nil {
		return h.Close()
	}
	return nil
}

// policy lets the page use its own files and nothing else: no inline script or style, and
// no text that becomes HTML.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	if s.opt.Token == "" && !access.Local(r.Host) {
		fail(w, http.StatusForbidden, fmt.Errorf("Host is %.100q: without a token requests must be for localhost or 127.0.0.1", r.Host)) //nolint:staticcheck // ST1005: a header's name
		return
	}
	if !s.allowed(r) && !(r.Method == http.MethodPost && r.URL.Path == "/login") && !strings.HasPrefix(r.URL.Path, "/static/") {
		h.Set("WWW-Authenticate", `Bearer realm="snug"`)
		if r.URL.Path == "/" && strings.Contains(r.Header.Get("Accept"), "text/html") {
			s.askToken(w, false)
			return
		}
		fail(w, http.StatusUnauthorized, errToken)
		return
	}
	s.mux.ServeHTTP(w, r)
}

var (
	errToken  = errors.New("want the header Authorization: Bearer TOKEN, or open / in a browser")
	errNoPage = errors.New("no such page; there are /, /events, /series, /metrics and /report/RUN/FILE")
)

const cookieName = "snug_monitor"

// secret is the content of the cookie: it proves the token without being it, and
// survives a restart.
func (s *Server) secret() string {
	m := hmac.New(sha256.New, []byte(s.opt.Token))
	_, _ = m.Write([]byte("snug monitor: cookie"))
	return hex.EncodeToString(m.Sum(nil))
}

func (s *Server) allowed(r *http.Request) bool {
	if s.opt.Token == "" || access.Bearer(r, s.opt.Token) {
		return true
	}
	c, err := r.Cookie(cookieName)
	return err == nil && access.Equal(c.Value, s.secret())
}

// askToken answers with the form for the token, wrong says that the previous one was
// wrong.
func (s *Server) askToken(w http.ResponseWriter, wrong bool) {
	w.Header().Set("Content-Type", staticTypes[".html"])
	w.WriteHeader(http.StatusUnauthorized)
	_ = loginPage.Execute(w, wrong) // a closed page needs no answer
}

// login takes the token from the form and sets the cookie.
func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 8<<10)
	if s.opt.Token != "" && !access.Equal(strings.TrimSpace(r.PostFormValue("token")), s.opt.Token) {
		s.askToken(w, true)
		return
	}
	if s.opt.Token != "" {
		http.SetCookie(w, &http.Cookie{Name: cookieName, Value: s.secret(), Path: "/", HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode, MaxAge: 30 * 24 * 3600})
	}
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// file answers with a file of the page.
func (s *Server) file(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/static/")
	if r.URL.Path == "/" {
		name = "index.html"
	}
	s.show(w, http.StatusOK, name)
}

var staticTypes = map[string]string{".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml", "": "text/plain; charset=utf-8"}

func (s *Server) show(w http.ResponseWriter, status int, name string) {
	raw, err := fs.ReadFile(files, path.Join("static", name))
	if err != nil {
		fail(w, http.StatusNotFound, errNoPage)
		return
	}
	w.Header().Set("Content-Type", staticTypes[path.Ext(name)])
	w.WriteHeader(status)
	_, _ = w.Write(raw) // a closed page needs no answer
}

// reply answers with a value as JSON.
func reply(w http.ResponseWriter, v any) {
	raw, err := json.Marshal(v)
	if err != nil {
		fail(w, http.StatusInternalServerError, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(raw, '\n')) // likewise
}

// fail answers with what is wrong, as text.
func fail(w http.ResponseWriter, status int, err error) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = fmt.Fprintln(w, err) // likewise
}
