package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/snug-ml/snug/monitor/web"
)

// monitorTokenVariable names the environment variable that holds the dashboard's token.
const monitorTokenVariable = "SNUG_MONITOR_TOKEN"

// webFlags are the flags of the dashboard.
type webFlags struct {
	Web       bool   `help:"Show the runs in a browser, and tell Prometheus at /metrics."`
	Listen    string `help:"With --web: address to listen on (default: 127.0.0.1:8412)." placeholder:"HOST:PORT"`
	TokenFile string `name:"token-file" help:"With --web: file with the token that requests must carry (default: the variable SNUG_MONITOR_TOKEN)." placeholder:"FILE"`
}

// check rejects flags that make no sense with --web, and flags that need it. other says that a flag for
// another kind of output is set.
func (f *webFlags) check(other bool) error {
	switch {
	case f.Web && other:
		return usage("--web shows runs until it is interrupted: leave out --only and --once")
	case f.Web:
	case f.Listen != "":
		return usage("--listen is for --web: add it, or leave --listen out")
	case f.TokenFile != "":
		return usage("--token-file is for --web: add it, or leave --token-file out")
	}
	return nil
}

// serveMonitor shows runs in a browser until it is interrupted.
func (a *app) serveMonitor(f webFlags, runs []string, interval time.Duration) error {
	if f.Listen == "" {
		f.Listen = "127.0.0.1:8412"
	}
	token, err := readToken(f.TokenFile, monitorTokenVariable)
	if err != nil {
		return err
	}
	if err := checkListen(f.Listen, token, monitorTokenVariable); err != nil {
		return err
	}
	if len(runs) == 0 {
		runs = []string{runsFolder}
	}
	l, err := a.listen(f.Listen)
	if err != nil {
		return err
	}
	server := web.New(web.Options{Runs: runs, Token: token, Interval: interval})
	url := fmt.Sprintf("http://%s", l.Addr())
	for _, x := range server.Missing() {
		a.warning("%s; it is shown as soon as it is there", x)
	}
	a.printf("dashboard at %s\nmetrics for Prometheus at %s/metrics\n", url, url)
	if a.asJSON {
		if err := a.jsonNow(map[string]any{"url": url, "metrics": url + "/metrics"}); err != nil {
			return errors.Join(err, l.Close())
		}
	}
	return server.Run(a.ctx, l)
}
