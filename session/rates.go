package session

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/plan"
	"github.com/snug-ml/snug/internal/durable"
	"github.com/snug-ml/snug/internal/regular"
	"github.com/snug-ml/snug/internal/strictjson"
)

// processor identifies what measured rates belong to.
type processor struct {
	Model   string `json:"model"`
	Kernels string `json:"kernels"`
	Workers int    `json:"workers"`
}

// keptRates is the folder that keeps the best rates of each processor between runs, because a single
// measurement only sees what the machine had to spare at that moment; empty means no folder.
type keptRates string

// ratesFolder returns the folder of the current user.
func ratesFolder() keptRates {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return keptRates(filepath.Join(dir, "snug"))
}

// ratesFile is the content of a file in the folder.
type ratesFile struct {
	Processor processor  `json:"processor"`
	Rates     plan.Rates `json:"rates"`
}

func (k keptRates) path(p processor) string {
	h := sha256.Sum256(fmt.Appendf(nil, "%q %q %d", p.Model, p.Kernels, p.Workers))
	return filepath.Join(string(k), "rates-"+hex.EncodeToString(h[:8])+".json")
}

// of returns the rates of p, unless the file is damaged or belongs to another processor.
func (k keptRates) of(p processor) (plan.Rates, bool) {
	if k == "" {
		return plan.Rates{}, false
	}
	text, err := regular.Read(k.path(p), regular.Text)
	if err != nil {
		return plan.Rates{}, false
	}
	var f ratesFile
	if strictjson.Unmarshal(text, &f) != nil || f.Processor != p || f.Rates.Workers != p.Workers || !f.Rates.Valid() {
		return plan.Rates{}, false
	}
	return f.Rates, true
}

// keep returns the best of what was measured now and what is stored, and stores it. If that fails, the next
// run knows less, which shows in the number of measurements in its plan.
func (k keptRates) keep(p processor, now plan.Rates) plan.Rates {
	if old, ok := k.of(p); ok {
		now = now.Best(old)
	}
	text, err := json.MarshalIndent(ratesFile{p, now}, "", "  ")
	if k == "" || err != nil || !now.Valid() || os.MkdirAll(string(k), 0o777) != nil {
		return now
	}
	_ = durable.Replace(k.path(p), append(text, '\n'))
	return now
}

// reuseRates is set by [ReuseRates].
var reuseRates bool

// enoughMeasurements is how many a busy machine needs for one of them to have most of the processor.
const enoughMeasurements = 40

// ReuseRates has this process take stored rates that are the best of enough measurements, without another one,
// which takes a third of the time of a tiny run. It is for tests, whose runs number hundreds.
func ReuseRates() { reuseRates = true }

// calibrated measures the device and returns its best known rates.
func (k keptRates) calibrated(p processor, on engine.Backend) (plan.Rates, error) {
	if reuseRates {
		if r, ok := k.of(p); ok && r.Measurements >= enoughMeasurements {
			return r, nil
		}
	}
	r, err := plan.Calibrate(on)
	if err != nil {
		return r, err
	}
	r.Workers = p.Workers
	return k.keep(p, r), nil
}
