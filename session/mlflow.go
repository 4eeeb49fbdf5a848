package session

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/internal/shell"
	"github.com/snug-ml/snug/monitor"
	"github.com/snug-ml/snug/train/mlflow"
	"github.com/snug-ml/snug/train/rundir"
)

// trackingServer returns the server that metrics.mlflow names, or nil if it names none.
func trackingServer(c *config.Config) (*mlflow.Server, error) {
	text := c.Metrics.MLflow
	if text == "" {
		return nil, nil
	}
	var at *url.URL
	var err error
	if text == config.TrackingEnv {
		at, err = trackingFromEnv()
	} else {
		at, err = config.TrackingURL(text) // checked when the configuration was read
	}
	if err != nil {
		return nil, usage("metrics.mlflow: %w", err)
	}
	server, err := mlflow.NewServer(at, "snug/"+Version())
	if err != nil {
		return nil, usage("metrics.mlflow: %w", err)
	}
	return server, nil
}

// trackingFromEnv returns the URL in MLFLOW_TRACKING_URI, which may contain a user and a password.
func trackingFromEnv() (*url.URL, error) {
	const name = "MLFLOW_TRACKING_URI"
	text := os.Getenv(name)
	if text == "" {
		return nil, errors.New("env stands for the URL in " + name + ", which is not set: set it, or give the URL itself")
	}
	var who *url.Userinfo
	if u, err := url.Parse(text); err == nil && u.User != nil {
		who, u.User = u.User, nil
		text = u.String()
	}
	at, err := config.TrackingURL(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	at.User = who
	return at, nil
}

// track starts to send the run in dir to server. again is the directory to resume the run with.
func (t *training) track(server *mlflow.Server, dir *rundir.Dir, about *monitor.Info, again string) *mlflow.Exporter {
	points := &runPoints{dir: dir, unit: about.Unit}
	return mlflow.Start(server, dir, trackedRun(dir, about, points.began(about.At)), points, mlflow.Options{
		Warn: t.warnf, Info: t.infof, Again: "snug train --resume --out " + shell.Path(again),
	})
}

// trackedRun returns the description of a run for the server.
func trackedRun(dir *rundir.Dir, about *monitor.Info, began time.Time) mlflow.Run {
	r := mlflow.Run{
		Experiment: os.Getenv("MLFLOW_EXPERIMENT_NAME"), ExperimentID: os.Getenv("MLFLOW_EXPERIMENT_ID"),
		Name: trackedName(dir.Path(), about.Phase), Start: began,
		Tags: []mlflow.Pair{
			{Key: "mlflow.user", Value: userName()}, {Key: "mlflow.source.name", Value: "snug train"}, {Key: "mlflow.source.type", Value: "LOCAL"},
			{Key: "mlflow.source.git.commit", Value: commit()},
			{Key: "snug.version", Value: about.Snug}, {Key: "snug.system", Value: about.System}, {Key: "snug.preset", Value: about.Preset}, {Key: "snug.phase", Value: about.Phase},
			{Key: "snug.device", Value: about.Device}, {Key: "snug.precision", Value: string(about.Precision)}, {Key: "snug.kernels", Value: about.Arithmetic}, {Key: "snug.host", Value: about.Host},
			{Key: "snug.parameters", Value: strconv.FormatInt(about.Parameters, 10)}, {Key: "snug.monitored_metric", Value: about.Monitored},
		},
	}
	for _, key := range slices.Sorted(maps.Keys(about.Settings)) {
		r.Params = append(r.Params, mlflow.Pair{Key: key, Value: about.Settings[key]})
	}
	return r
}

// trackedName returns the name of the run directory, for a phase preceded by that of the whole run.
func trackedName(path, phase string) string {
	if full, err := filepath.Abs(path); err == nil {
		path = full
	}
	name := filepath.Base(path)
	if phase != "" && name == phase {
		name = filepath.Base(filepath.Dir(path)) + "/" + name
	}
	return name
}

// userName returns the name of the current user; empty if unknown.
func userName() string {
	u, err := user.Current()
	if err != nil {
		return ""
	}
	return u.Username
}

// commit returns the commit that this binary was built from; empty if unknown.
func commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return ""
}

// trackedStatus translates the end of a session to an MLflow status.
func trackedStatus(s monitor.State) mlflow.Status {
	switch s {
	case monitor.Done:
		return mlflow.Finished
	case monitor.Stopped:
		return mlflow.Killed
	}
	return mlflow.Failed
}

// trackDone sends whatever the server lacks of a phase that is done.
func (t *training) trackDone(c *config.Config, path string) (err error) {
	server, err := trackingServer(c)
	if server == nil || err != nil {
		return err
	}
	dir, err := rundir.Open(path, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	if mlflow.ReadNote(dir).Done {
		return nil
	}
	seen, err := monitor.Open(path)
	if err != nil {
		return err
	}
	about := seen.Snapshot(time.Now(), monitor.View{Width: 1}).Info
	t.track(server, dir, &about, filepath.Dir(path)).End(mlflow.Finished)
	return nil
}
