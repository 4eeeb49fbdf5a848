package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Two calls: what the second did counts, unless it failed where the first had not.
const firstCall = `{"part":"about","result":"ok","seconds":0,"data":[{"date":"2026-11-22","card":"NVIDIA H100","driver":"580, 700 W","precision":"bf16","torch":"2.11.0"}]}
{"part":"operations","result":"exit code 1","seconds":40,"data":[{"cases":2900,"failed":2,"failing":["a/b","c"]}]}
{"part":"memory","result":"ok","seconds":2,"data":[{"card_planned_bytes":1073741824,"card_used_bytes":1099511627776},{"run":"library","card_planned_bytes":1073741824,"card_used_bytes":2147483648,"matmuls":"its code takes 1 GiB"}]}
{"part":"code","result":"ok","seconds":9,"data":[{"run":"cold","kernels":40,"load_seconds":2.5,"use":{"a":{"registers":80,"local_bytes":0}}},{"run":"warm","kernels":40,"load_seconds":0.05,"use":{"a":{"registers":80,"local_bytes":0},"b":{"registers":255,"local_bytes":16}}}]}
{"part":"gpt2.snug.1","result":"ok","seconds":9,"data":[{"ms":50,"mfu":0.2,"joules":30,"card_used_bytes":2147483648,"operations":[{"op":"matmul","runs":36,"matrix_flops":4e12,"bytes":1e9,"predicted_seconds":0.01,"measured_seconds":0.04},{"op":"adamw","runs":3,"bytes":2e9,"predicted_seconds":0.01,"measured_seconds":0.01}]}]}
{"part":"gpt2.torch.1","result":"stopped after 9 s","seconds":9,"data":[{"work":"gpt2","mode":"eager","ms":100,"joules":60,"card_bytes":4294967296}]}
{"part":"matmuls","result":"ok","seconds":0,"data":[{"maker":{},"products":[{"product":"a","algorithm":"AAAA","snug_us":10,"cublaslt_us":5},{"product":"b","snug_us":20}]}]}
`

const secondCall = `{"part":"operations","result":"ok","seconds":41,"data":[{"cases":2900,"failed":0,"failing":[]}]}
{"part":"memory","result":"stopped after 5 s","seconds":5,"data":[]}
{"part":"gpt2.torch.1","result":"ok","seconds":9,"data":[{"work":"gpt2","mode":"eager","ms":100,"joules":60},{"work":"gpt2","mode":"max-autotune","ms":40,"joules":20,"card_bytes":4294967296}]}
{"part":"gpt2.snug.2","result":"ok","seconds":9,"data":[{"ms":60,"mfu":0.2}]}
{"part":"agiformer.snug.1","result":"ok","seconds":9,"data":[{"sweeps":[{"rows":[{"update_seconds_median":0.5,"joules_per_update":7,"card_used_bytes":1073741824,"flops_utilization":0.1}]}]}]}
{"part":"kernels.snug","result":"ok","seconds":9,"data":[{"kernel":"near","seconds":1e-4,"predicted_seconds":5e-5,"matrix_flops":1e10,"bytes":1e6,"peak_flops":1e15,"peak_bytes_per_second":1e12},{"kernel":"far","seconds":1e-3,"bytes":1e6}]}
{"part":"matmuls","result":"ok","seconds":0,"data":[{"maker":{},"products":[{"product":"a","algorithm":"AAAA","snug_us":11,"cublaslt_us":5},{"product":"c","snug_us":15,"cublaslt_us":30}]}]}
{"part":"kernels.torch","result":"ok","seconds":9,"data":[{"kernel":"near","torch_seconds":1e-4},{"kernel":"far","torch_seconds":2e-4}]}
`

func TestReport(t *testing.T) {
	r := &results{}
	for _, s := range []string{firstCall, `{"part":"memory","result":"ok","data":[{"ms":NaN}]}` + "\n", secondCall} {
		r.read([]byte(s))
	}
	var b bytes.Buffer
	r.write(&b)
	text := b.String()
	at := -1
	for _, want := range []string{
		"## 2026-11-22 NVIDIA H100\n", "matmuls in bf16; driver 580, 700 W; PyTorch 2.11.0.",
		"| operations | ok | 41 | 2900 cases |", "| memory | ok | 2 | planned 1.00, used 1024.00; library: planned 1.00, used 2.00 (its code takes 1 GiB) |",
		"| code | ok | 9 | 40 kernels, the driver's folder cold: 2.500 s; 40 kernels, the driver's folder warm: 0.050 s, registers are spilled by b |",
		"are left out: 1.\n",
		// the medians of 50 and 60, 100 and 40; MFU by time
		"| gpt2 | 55.0 | 100.0 | 40.0 | 0.55 | 1.38 | 20.0 % | 27.5 % | 30.00 | 20.00 | 2.00 | - | 4.00 |",
		"| agiformer | 500.0 | - | - | - | - | 10.0 % | - | 7.00 | - | 1.00 | - | - |",
		"| gpt2 | 1.38 of 0.95: MISSED | 0.50 of 0.60: met |", "| agiformer | not measured, at most 0.50 | not measured, at most 0.60 |",
		// what lags most comes first
		"| far | 1000.0 | - | - | 1 | - | - | - | 200.0 | 5.00 |", "| near | 100.0 | 100.0 | 10 % | 10 | 1 % | 50.0 | 2.00 | 100.0 | 1.00 |",
		"cuBLASLt computes 1 of 3:", "| b | 20.0 | - | - |", "| c | 15.0 | 30.0 | 2.00 |", "| a | 10.0 | 5.0 | 0.50 |",
		"Where the time of gpt2.snug.1 goes", "| matmul | 36 | 80.0 % | 40.00 | 4.00 | 100.0 | 25 |", "| adamw | 3 | 20.0 % | 10.00 | 1.00 | - | 200 |",
	} {
		i := strings.Index(text, want)
		if i <= at {
			t.Errorf("want after byte %d: %q", at, want)
		}
		at = max(at, i)
	}
	if t.Failed() {
		t.Log(text)
	}
}

func TestLine(t *testing.T) {
	for printed, want := range map[string]string{
		"":                                   `{"part":"a","result":"ok","seconds":3,"data":[]}`,
		"{\n  \"b\": 1\n}\n":                 `{"part":"a","result":"ok","seconds":3,"data":[{"b":1}]}`,
		"hello\n{\"b\": 1}\n{\"c\":2}\n":     `{"part":"a","result":"ok","seconds":3,"data":[{"b":1},{"c":2}]}`,
		"{\"b\":NaN}\n{\"c\":2}\n{\"d\":3\n": `{"part":"a","result":"ok, 2 lines are no JSON","seconds":3,"data":[{"c":2}]}`,
	} {
		var said bytes.Buffer
		line, err := json.Marshal((&lineCmd{Part: "a", Result: "ok", Seconds: 3}).line([]byte(printed), &said))
		if err != nil || string(line) != want {
			t.Errorf("%q: %s, error %v, want %s", printed, line, err, want)
		}
		if bad := strings.Contains(want, "no JSON"); bad != strings.Contains(said.String(), "a: no JSON: {\"b\":NaN}\n") {
			t.Errorf("%q: says %q", printed, said.String())
		}
	}
}

func TestLosses(t *testing.T) {
	write := func(lines ...string) string {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Join(dir, "phase"), 0o777); err != nil {
			t.Fatal(err)
		}
		text := `{"event":"run","update":0}` + "\n" + strings.Join(lines, "\n") + "\n"
		if err := os.WriteFile(filepath.Join(dir, "phase", "metrics.jsonl"), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	want := write(`{"event":"update","update":1,"loss":4}`, `{"event":"update","update":2,"loss":2}`)
	for name, c := range map[string]struct {
		got, says string
	}{
		"near":    {write(`{"event":"update","update":1,"loss":4.04}`, `{"event":"update","update":2,"loss":2}`), ""},
		"far":     {write(`{"event":"update","update":1,"loss":4.04}`, `{"event":"update","update":2,"loss":2.1}`), "phase, update 2: 2 and 2.1: the losses differ by 0.05"},
		"broken":  {write(`{"event":"update","update":1,"loss":4}`, `{"event":"update","update":2,"loss":"NaN"}`), "the losses differ by NaN"},
		"shorter": {write(`{"event":"update","update":1,"loss":4}`), "phase: 2 losses in one run, 1 in the other"},
		"other":   {write(`{"event":"update","update":1,"loss":4}`, `{"event":"update","update":3,"loss":2}`), "a loss of update 2 in one run, of 3 in the other"},
		"nothing": {t.TempDir(), "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			err := (&lossesCmd{Want: want, Got: c.got, Within: 0.02}).Run()
			if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("error %v, want %q", err, c.says)
			}
		})
	}
}
