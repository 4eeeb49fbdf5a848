package mlflow

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/snug-ml/snug/internal/few"
	"github.com/snug-ml/snug/internal/regular"
)

// Server is an MLflow tracking server.
type Server struct {
	url       *url.URL // without user and password
	authorize func(*http.Request)
	http      *http.Client
	timeout   time.Duration // of each request
}

// requestTimeout is longer than a server with a locked database takes.
const requestTimeout = 30 * time.Second

// NewServer returns the server at an address, to which it does not connect. A user in the
// address takes precedence over the environment: MLFLOW_TRACKING_USERNAME with
// MLFLOW_TRACKING_PASSWORD, otherwise MLFLOW_TRACKING_TOKEN;
// MLFLOW_TRACKING_SERVER_CERT_PATH, MLFLOW_TRACKING_INSECURE_TLS, and the usual variables
// for proxies.
func NewServer(at *url.URL, agent string) (*Server, error) {
	s := &Server{url: at.JoinPath(), timeout: requestTimeout}
	s.url.User = nil
	user, password := os.Getenv("MLFLOW_TRACKING_USERNAME"), os.Getenv("MLFLOW_TRACKING_PASSWORD")
	if at.User != nil {
		user = at.User.Username()
		password, _ = at.User.Password()
	}
	token := os.Getenv("MLFLOW_TRACKING_TOKEN")
	s.authorize = func(r *http.Request) {
		r.Header.Set("User-Agent", agent)
		switch {
		case user != "" && password != "":
			r.SetBasicAuth(user, password)
		case token != "":
			r.Header.Set("Authorization", "Bearer "+token)
		}
	}
	transport, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return nil, errors.New("another transport for HTTP is set in this process")
	}
	transport = transport.Clone()
	var err error
	if transport.TLSClientConfig, err = encryption(); err != nil {
		return nil, err
	}
	s.http = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // a POST would arrive as a GET
	}}
	return s, nil
}

// encryption returns the TLS settings in the environment.
func encryption() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if v := os.Getenv("MLFLOW_TRACKING_INSECURE_TLS"); v == "1" || strings.EqualFold(v, "true") {
		c.InsecureSkipVerify = true //nolint:gosec // asked for by that name
	}
	if path := os.Getenv("MLFLOW_TRACKING_SERVER_CERT_PATH"); path != "" {
		text, err := regular.Read(path, regular.Text)
		if err != nil {
			return nil, fmt.Errorf("MLFLOW_TRACKING_SERVER_CERT_PATH: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("MLFLOW_TRACKING_SERVER_CERT_PATH: %s holds no certificate in PEM form", path)
		}
	}
	return c, nil
}

// String returns the address, without secrets.
func (s *Server) String() string { return strings.TrimSuffix(s.url.String(), "/") }

// Error is an answer that refuses a request, or the lack of one.
type Error struct {
	Server string
	Err    error
	// Code is MLflow's code, such as RESOURCE_DOES_NOT_EXIST; empty: none.
	Code string
	// Permanent means that no retry can fix the error, and Hint says what to do about it.
	Permanent bool
	Hint      string
}

func (e *Error) Error() string {
	if e.Hint == "" {
		return fmt.Sprintf("%s: %v", e.Server, e.Err)
	}
	return fmt.Sprintf("%s: %v: %s", e.Server, e.Err, e.Hint)
}

// Unwrap returns what went wrong.
func (e *Error) Unwrap() error { return e.Err }

// missing reports whether an error says that the server does not have the named object.
func missing(err error) bool {
	e := (*Error)(nil)
	return errors.As(err, &e) && e.Code == "RESOURCE_DOES_NOT_EXIST"
}

// maxAnswer bounds how much of an answer is read: a run has at most some thousand
// parameters, tags and metrics.
const maxAnswer = 16 << 20

// get requests out.
func (s *Server) get(ctx context.Context, path string, query url.Values, out any) error {
	return s.do(ctx, http.MethodGet, path, query, nil, out)
}

// post sends in, and reads out unless it is nil.
func (s *Server) post(ctx context.Context, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return &Error{Server: s.String(), Err: err, Permanent: true}
	}
	return s.do(ctx, http.MethodPost, path, nil, body, out)
}

func (s *Server) do(ctx context.Context, method, path string, query url.Values, body []byte, out any) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.timeout, fmt.Errorf("no answer within %s", s.timeout))
	defer cancel()
	to := s.url.JoinPath("api/2.0/mlflow", path)
	to.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, method, to.String(), bytes.NewReader(body))
	if err != nil {
		return &Error{Server: s.String(), Err: err, Permanent: true}
	}
	s.authorize(req)
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := s.http.Do(req)
	if err != nil {
		return s.unreachable(ctx, err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case err != nil:
		return s.unreachable(ctx, err)
	case res.StatusCode != http.StatusOK:
		return s.refusal(res, text)
	case len(text) > maxAnswer:
		return &Error{Server: s.String(), Err: fmt.Errorf("an answer of more than %d bytes to %s", maxAnswer, path), Permanent: true}
	case out == nil:
		out = &struct{}{}
	}
	if err := json.Unmarshal(text, out); err != nil {
		return s.stranger(fmt.Sprintf("its answer to %s is not MLflow's JSON: %s", path, few.Text(string(text), 80)))
	}
	return nil
}

// unreachable is the error of a request that had no answer.
func (s *Server) unreachable(ctx context.Context, err error) error {
	e := &Error{Server: s.String(), Err: err}
	if cause := context.Cause(ctx); cause != nil {
		e.Err = cause
	} else if u := (*url.Error)(nil); errors.As(err, &u) {
		e.Err = u.Err // without the URL of the request
	}
	if c := (*tls.CertificateVerificationError)(nil); errors.As(err, &c) {
		e.Permanent, e.Hint = true, "name the certificate of its authority in MLFLOW_TRACKING_SERVER_CERT_PATH"
	}
	return e
}

// stranger returns the error for a server that is not MLflow.
func (s *Server) stranger(why string) error {
	return &Error{Server: s.String(), Err: errors.New(why), Permanent: true, Hint: "check that metrics.mlflow is the URL of an MLflow tracking server, with its path if it has one"}
}

// refusal returns the error for an answer that is not 200.
func (s *Server) refusal(res *http.Response, text []byte) error {
	var body struct {
		Code    string `json:"error_code"`
		Message string `json:"message"`
	}
	if json.Unmarshal(text, &body) != nil {
		body.Code, body.Message = "", ""
		if strings.HasPrefix(res.Header.Get("Content-Type"), "text/plain") {
			body.Message = string(text) // from whatever checks requests before MLflow does
		}
	}
	e := &Error{Server: s.String(), Code: body.Code, Err: errors.New(res.Status)}
	if said := cmp.Or(body.Message, body.Code); said != "" {
		e.Err = fmt.Errorf("%s: %s", res.Status, few.Text(oneLine(said), 300))
	}
	switch code := res.StatusCode; {
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		e.Permanent, e.Hint = true, "set MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, to those of a user who may write to the experiment"
	case code >= 300 && code < 400:
		e.Permanent, e.Hint = true, "it redirects to "+few.Text(redirect(res), 200)+"; name the server itself in metrics.mlflow"
	case code == http.StatusNotFound && e.Code == "":
		return s.stranger(fmt.Sprintf("it answered %s to %s", res.Status, res.Request.URL.Path))
	case code == http.StatusRequestTimeout || code == http.StatusTooManyRequests || e.Code == "RESOURCE_ALREADY_EXISTS":
	case code >= 400 && code < 500:
		e.Permanent = true
	}
	return e
}

// redirect returns where an answer points to, without secrets.
func redirect(res *http.Response) string {
	to, err := res.Location()
	if err != nil {
		return "another place"
	}
	return to.Redacted()
}

// oneLine returns a text without line ends and other characters that do not print.
func oneLine(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }), " ")
}
