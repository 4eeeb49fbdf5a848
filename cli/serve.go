package cli

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/plan"
	"github.com/snug-ml/snug/inference"
	"github.com/snug-ml/snug/inference/openai"
	"github.com/snug-ml/snug/inference/serve"
	"github.com/snug-ml/snug/internal/regular"
	"github.com/snug-ml/snug/train/checkpoint"
)

// tokenVariable names the environment variable that holds the server's token.
const tokenVariable = "SNUG_SERVE_TOKEN"

// maxToken is the maximum size of a token file, in bytes.
const maxToken = 4 << 10

type serveCmd struct {
	pick
	Listen    string        `default:"127.0.0.1:8411" help:"Address to listen on." placeholder:"HOST:PORT"`
	TokenFile string        `name:"token-file" help:"File with the token that requests must carry (default: the variable SNUG_SERVE_TOKEN)." placeholder:"FILE"`
	MaxText   int           `name:"max-text" default:"20000" help:"Maximum size of a text in bytes." min:"1" of:"bytes"`
	MaxTexts  int           `name:"max-texts" default:"256" help:"Maximum number of texts per batch." min:"1" of:"requests"`
	MaxBody   int64         `name:"max-body" default:"1048576" help:"Maximum size of a request in bytes." min:"1" of:"bytes"`
	Timeout   time.Duration `help:"Maximum time for a request, waiting included (default: 10s, and 10m for a language model)." above:"0" of:"duration"`
	Waiting   int           `default:"512" help:"Maximum number of waiting requests, or texts of a language model; more are refused." min:"1" of:"requests"`
	Grace     time.Duration `default:"10s" help:"Time to finish requests after Ctrl-C or SIGTERM." min:"0" of:"duration"`
	Rows      int           `help:"Language models: texts generated at once (default: 8, or as many as fit)." min:"1" max:"256" of:"rows"`
	Context   int           `help:"Language models: maximum tokens of a text, prompt included (default: the model's maximum)." min:"1" of:"tokens"`
	Name      string        `help:"Language models: model name in requests (default: the name of the run directory)." placeholder:"NAME"`
	Threads   int           `help:"Worker threads (default: the cores this process may use)." min:"1" of:"threads" key:"hardware.threads"`
}

// Help implements kong.HelpProvider.
func (serveCmd) Help() string {
	return `Serves the best checkpoint of a run: a moderation model at its own endpoints, a
language model (refocused, finetune, agiformer) with OpenAI's completions API.
Runs of cloudbase and dynamo cannot be served.

Examples:
  snug serve runs/mine
  curl -s localhost:8411/moderate -H 'Content-Type: application/json' -d '{"text": "...", "threshold": 0.7}'
  curl -s localhost:8411/moderate/batch -H 'Content-Type: application/json' -d '{"texts": ["...", "..."]}'

  snug serve runs/quickstart --rows 4
  curl -s localhost:8411/v1/completions -H 'Content-Type: application/json' \
    -d '{"model": "quickstart", "prompt": "func main", "max_tokens": 40, "stream": true}'

The memory of a language model, including its key-value cache, is planned before
anything is allocated; what does not fit is refused with exit code 3.

If the device is lost, requests get status 503 and the server ends with exit code 6.

Without a token the server listens on this machine only. With one, every request
except /healthz must carry it: Authorization: Bearer TOKEN.`
}

// Run implements the command.
func (s *serveCmd) Run(a *app) (err error) {
	token, err := readToken(s.TokenFile, tokenVariable)
	if err != nil {
		return err
	}
	if err := checkListen(s.Listen, token, tokenVariable); err != nil {
		return err
	}
	o, err := a.open(s.pick)
	if err != nil {
		return err
	}
	on, err := o.device(a, s.Threads)
	if err != nil {
		return err
	}
	service, opt, err := s.service(o, on, token)
	if err != nil {
		return err
	}
	server := serve.New(service, opt)
	defer func() {
		if closing := server.Close(); err == nil || !backend.Lost(closing) { // which err says already
			err = errors.Join(err, closing)
		}
	}()
	l, err := a.listen(s.Listen)
	if err != nil {
		return err
	}
	lines, fields := service.Ready()
	url := fmt.Sprintf("http://%s", l.Addr())
	a.printf("%v\n%s\nlistening on %s\n", o, strings.Join(lines, "\n"), url)
	if a.asJSON {
		fields["checkpoint"], fields["update"], fields["chosen"], fields["url"] = o.Path, o.Update, o.Why, url
		if err := a.jsonNow(fields); err != nil {
			return errors.Join(err, l.Close())
		}
	}
	return server.Run(a.ctx, l, s.Grace, func() { a.printf("finishing requests\n") })
}

// The time limits of requests.
const (
	answerTimeout = 10 * time.Second
	writeTimeout  = 10 * time.Minute
)

// service loads the model that answers requests, with the limits for them.
func (s *serveCmd) service(o *opened, on engine.Backend, token string) (serve.Service, serve.Options, error) {
	opt := serve.Options{Token: token, MaxBody: s.MaxBody, MaxText: s.MaxText, MaxTexts: s.MaxTexts, Timeout: answerTimeout, Waiting: s.Waiting, Lost: backend.Lost}
	if s.Timeout > 0 {
		opt.Timeout = s.Timeout
	}
	switch {
	case o.system.Language != nil:
		if s.Timeout == 0 {
			opt.Timeout = writeTimeout
		}
		service, err := s.language(o, on, opt)
		return service, opt, err
	case o.system.Service == nil:
		return nil, opt, fmt.Errorf("%s is a run of the system %s, which cannot be served", s.Path, o.config.System)
	case s.Rows > 0 || s.Context > 0 || s.Name != "":
		return nil, opt, usage("--rows, --context and --name are for language models; %s is a run of the system %s", s.Path, o.config.System)
	}
	service, err := o.system.Service(o.config, o.Path, on, opt)
	return service, opt, err
}

// language serves a language model.
func (s *serveCmd) language(o *opened, on engine.Backend, opt serve.Options) (serve.Service, error) {
	l, err := o.system.Language(o.config, o.Path)
	if err != nil {
		return nil, err
	}
	if s.Context > l.Positions() {
		return nil, usage("--context %d: the model was made for %d tokens", s.Context, l.Positions())
	}
	target := plan.OnHost(device.DetectHost(), plan.Rates{})
	target.Traits = on.Traits()
	if o.typed("hardware.memory_budget") {
		target.Budget = int64(o.config.Hardware.MemoryBudget)
	}
	e, err := inference.NewEngine(l, inference.EngineOptions{Rows: s.Rows, Context: s.Context, Waiting: s.Waiting, Target: target}, on)
	if err != nil {
		return nil, err
	}
	name := s.Name
	if name == "" {
		if name, err = runName(o.Path); err != nil {
			return nil, errors.Join(err, e.Close())
		}
	}
	return openai.New(e, name, opt), nil
}

// runName returns the name of the run directory that contains a checkpoint.
func runName(path string) (string, error) {
	dir, err := filepath.Abs(checkpoint.RunOf(path))
	return filepath.Base(dir), err
}

// readToken reads the token of a server from a file or, if none is given, from a variable. It is empty if
// there is no token.
func readToken(file, variable string) (string, error) {
	if file == "" {
		token := os.Getenv(variable)
		return token, sendable(variable, token)
	}
	raw, err := regular.Read(file, maxToken)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(raw))
	if token == "" {
		return "", usage("--token-file %s: the file is empty", file)
	}
	return token, sendable("--token-file "+file, token)
}

// sendable rejects a token that no client could send in a header.
func sendable(where, token string) error {
	if len(token) > maxToken {
		return usage("%s: a token of %d bytes, want at most %d", where, len(token), maxToken)
	}
	if i := strings.IndexFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }); i >= 0 {
		return usage("%s: character %d of the token is %q, which a header cannot carry: want ASCII letters, digits and punctuation, without spaces", where, utf8.RuneCountInString(token[:i])+1, []rune(token[i:])[0])
	}
	return nil
}

// listen opens an address for a server.
func (a *app) listen(address string) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(a.ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%w (another address: --listen 127.0.0.1:0 takes a free port)", err)
	}
	return l, nil
}

// checkListen rejects serving other machines without a token.
func checkListen(listen, token, variable string) error {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return usage("--listen %s: %v", listen, err)
	}
	ip := net.ParseIP(host)
	if token == "" && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return usage("--listen %s is open to other machines: set a token with the variable %s or --token-file, or listen on 127.0.0.1", listen, variable)
	}
	return nil
}
