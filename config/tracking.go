package config

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// TrackingEnv as the value of metrics.mlflow stands for the URL in MLFLOW_TRACKING_URI.
const TrackingEnv = "env"

// checkTracking checks metrics.mlflow.
func (c *Config) checkTracking(r *Report) {
	text := c.Metrics.MLflow
	if text == "" || text == TrackingEnv {
		return
	}
	if _, err := TrackingURL(text); err != nil {
		r.Error("metrics.mlflow", "%v", err)
	}
}

// TrackingURL parses the address of an MLflow tracking server. Its errors never contain a password.
func TrackingURL(text string) (*url.URL, error) {
	if !strings.Contains(text, "://") {
		return nil, errors.New("want the URL of an MLflow tracking server, such as http://localhost:5000 or https://mlflow.example.org/team, or env for that of MLFLOW_TRACKING_URI")
	}
	u, err := url.Parse(text)
	if err != nil {
		if e := (*url.Error)(nil); errors.As(err, &e) {
			err = e.Err // the other fields contain the URL, which may hold a password
		}
		return nil, fmt.Errorf("not a URL: %w", err)
	}
	switch {
	case u.User != nil:
		return nil, errors.New("the URL has a user or password, which would be written to config.yaml: leave them out and set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("the scheme %q is not that of a tracking server: want http:// or https://; where runs are kept in a folder or a database, start `mlflow server --backend-store-uri ...` and give its URL", u.Scheme)
	case u.Hostname() == "":
		return nil, fmt.Errorf("the URL has no host: want %s://HOST[:PORT]", u.Scheme)
	case u.RawQuery != "" || u.ForceQuery:
		return nil, errors.New("the part after ? has no meaning here: want the URL of the server alone, and a token in MLFLOW_TRACKING_TOKEN")
	case u.Fragment != "" || strings.Contains(text, "#"):
		return nil, errors.New("that is the address of a page: leave out # and what follows")
	}
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), ""
	return u, nil
}
