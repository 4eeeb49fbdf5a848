// Package deploy holds files for clusters; its tests keep them valid.
package deploy

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/snug-ml/snug/dist"
)

// field is what a schema says of a value: its type, and of an object its fields, of an array its
// items. A name that ends in ! is required, * is any.
type field struct {
	kind   string // object, array, string, integer, quantity
	fields map[string]*field
	items  *field
}

func object(fields map[string]*field) *field { return &field{kind: "object", fields: fields} }
func array(items *field) *field              { return &field{kind: "array", items: items} }

var (
	text     = &field{kind: "string"}
	integer  = &field{kind: "integer"}
	quantity = &field{kind: "quantity"}
	labels   = object(map[string]*field{"*": text})
)

// The facts of the schemas that the manifests use, as of kubeflow/trainer 8c0f505 (2026-08-21),
// manifests/base/crds: what is not listed is no field there, or none that is used here.
var (
	container = object(map[string]*field{
		"name!": text, "image": text, "command": array(text), "args": array(text), "workingDir": text,
		"volumeMounts": array(object(map[string]*field{"name!": text, "mountPath!": text})),
	})
	pod = object(map[string]*field{
		"restartPolicy": text, "terminationGracePeriodSeconds": integer, "containers!": array(container),
		"volumes": array(object(map[string]*field{"name!": text, "persistentVolumeClaim": object(map[string]*field{"claimName!": text})})),
	})
	metadata = object(map[string]*field{"name!": text, "labels": labels})
	schemas  = map[string]*field{
		"ClusterTrainingRuntime": object(map[string]*field{"apiVersion!": text, "kind!": text, "metadata!": metadata, "spec!": object(map[string]*field{
			"mlPolicy": object(map[string]*field{"numNodes": integer, "torch": object(map[string]*field{})}),
			"template": object(map[string]*field{"spec": object(map[string]*field{
				"failurePolicy": object(map[string]*field{"maxRestarts": integer}),
				"replicatedJobs": array(object(map[string]*field{"name!": text, "template!": object(map[string]*field{
					"metadata": object(map[string]*field{"labels": labels}),
					"spec":     object(map[string]*field{"backoffLimit": integer, "template!": object(map[string]*field{"spec": pod})}),
				})})),
			})}),
		})}),
		"TrainJob": object(map[string]*field{"apiVersion!": text, "kind!": text, "metadata!": metadata, "spec!": object(map[string]*field{
			"runtimeRef!": object(map[string]*field{"apiGroup": text, "kind": text, "name!": text}),
			"trainer": object(map[string]*field{
				"numNodes": integer, "numProcPerNode": integer, "image": text, "command": array(text), "args": array(text),
				"resourcesPerNode": object(map[string]*field{"limits": object(map[string]*field{"*": quantity}), "requests": object(map[string]*field{"*": quantity})}),
			}),
		})}),
	}
)

// check compares a value with what its schema says.
func (f *field) check(at string, v any) error {
	bad := func() error { return fmt.Errorf("%s is %v (%T), want %s", at, v, v, f.kind) }
	switch f.kind {
	case "string":
		if _, ok := v.(string); !ok {
			return bad()
		}
	case "integer":
		if _, ok := v.(int); !ok {
			return bad()
		}
	case "quantity":
		switch v.(type) {
		case string, int:
		default:
			return bad()
		}
	case "array":
		list, ok := v.([]any)
		if !ok {
			return bad()
		}
		var errs []error
		for i, x := range list {
			errs = append(errs, f.items.check(fmt.Sprintf("%s[%d]", at, i), x))
		}
		return errors.Join(errs...)
	case "object":
		m, ok := v.(map[string]any)
		if !ok {
			return bad()
		}
		var errs []error
		for name, x := range m {
			own := f.fields[name]
			if own == nil {
				own = f.fields[name+"!"]
			}
			if own == nil {
				own = f.fields["*"]
			}
			if own == nil {
				errs = append(errs, fmt.Errorf("%s.%s: no such field", at, name))
				continue
			}
			errs = append(errs, own.check(at+"."+name, x))
		}
		for name := range f.fields {
			if required, ok := strings.CutSuffix(name, "!"); ok && m[required] == nil {
				errs = append(errs, fmt.Errorf("%s.%s is missing", at, required))
			}
		}
		return errors.Join(errs...)
	}
	return nil
}

// manifest reads a file of one document.
func manifest(t *testing.T, name string) map[string]any {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("kubeflow", name))
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := yaml.Unmarshal(b, &m); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return m
}

// at follows keys and numbers.
func at(t *testing.T, v any, path ...any) any {
	t.Helper()
	for _, p := range path {
		switch k := p.(type) {
		case string:
			v = v.(map[string]any)[k]
		case int:
			v = v.([]any)[k]
		}
		if v == nil {
			t.Fatalf("no %v in %v", p, path)
		}
	}
	return v
}

func TestManifests(t *testing.T) {
	for _, name := range []string{"runtime.yaml", "job.yaml"} {
		m := manifest(t, name)
		kind, _ := m["kind"].(string)
		if schemas[kind] == nil || m["apiVersion"] != "trainer.kubeflow.org/v1alpha1" {
			t.Fatalf("%s is a %v %v", name, m["apiVersion"], kind)
		}
		if err := schemas[kind].check(kind, m); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		// The check can fail: a field too many, one of another type, and one missing.
		m["spec"].(map[string]any)["trainers"] = 1
		m["metadata"].(map[string]any)["name"] = 3
		delete(m, "kind")
		if err := schemas[kind].check(kind, m); err == nil || strings.Count(err.Error(), "\n") != 2 {
			t.Errorf("%s: three mistakes are %v", name, err)
		}
	}
	runtime, job := manifest(t, "runtime.yaml"), manifest(t, "job.yaml")
	if at(t, job, "spec", "runtimeRef", "name") != at(t, runtime, "metadata", "name") || at(t, job, "spec", "runtimeRef", "kind") != runtime["kind"] {
		t.Error("the job names another runtime")
	}
	node := at(t, runtime, "spec", "template", "spec", "replicatedJobs", 0)
	// The names that the controller looks for: the container node of the job labeled as trainer.
	if at(t, node, "name") != "node" || at(t, node, "template", "spec", "template", "spec", "containers", 0, "name") != "node" ||
		at(t, node, "template", "metadata", "labels", "trainer.kubeflow.org/trainjob-ancestor-step") != "trainer" ||
		at(t, runtime, "metadata", "labels", "trainer.kubeflow.org/framework") != "torch" {
		t.Error("the controller would give no container its variables")
	}
	args := at(t, job, "spec", "trainer", "args").([]any)
	i := slices.Index(args, any("--training.gradient_accumulation_steps"))
	if processes := at(t, job, "spec", "trainer", "numNodes").(int) * at(t, job, "spec", "trainer", "numProcPerNode").(int); i < 0 || args[i+1] != "8" || 8 < processes {
		t.Errorf("%d processes cannot share the micro-batches of %v", processes, args)
	}
	// What the controller sets for this job is what snug reads.
	env := map[string]string{"PET_NNODES": "2", "PET_NPROC_PER_NODE": fmt.Sprint(at(t, job, "spec", "trainer", "numProcPerNode")), "PET_NODE_RANK": "1",
		"PET_MASTER_ADDR": fmt.Sprintf("%[1]v-node-0-0.%[1]v", at(t, job, "metadata", "name")), "PET_MASTER_PORT": "29500"}
	l, err := dist.FindLaunch(func(name string) string { return env[name] })
	if err != nil || l == nil || !l.Machines || l.Spread(1, false) != nil || l.Rank != 1 || l.World != 2 || l.Address != "snug-run-node-0-0.snug-run:29500" {
		t.Errorf("snug finds %+v (%v)", l, err)
	}
}

// The script of Slurm starts snug as its arguments say, and asks for a new start when the
// run can continue.
func TestSlurmScript(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash")
	}
	dir := t.TempDir()
	for name, script := range map[string]string{
		"srun":     "#!/bin/sh\necho srun \"$@\"\nexit $CODE\n",
		"scontrol": "#!/bin/sh\necho scontrol \"$@\"\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range []struct {
		code     int
		args     []string
		want     string
		result   int
		restarts string
	}{
		{0, []string{"colab", "--training.max_steps", "7"}, "srun --kill-on-bad-exit=1 snug train colab --out runs/colab --resume --training.max_steps 7\n", 0, ""},
		{4, []string{"colab"}, "srun --kill-on-bad-exit=1 snug train colab --out runs/colab --resume\nscontrol requeue 17\n", 4, "100"},
		{7, []string{"colab"}, "srun --kill-on-bad-exit=1 snug train colab --out runs/colab --resume\nscontrol requeue 17\n", 7, ""},
		{137, []string{"colab"}, "srun --kill-on-bad-exit=1 snug train colab --out runs/colab --resume\nscontrol requeue 17\n", 137, "9"},
		{137, []string{"colab"}, "srun --kill-on-bad-exit=1 snug train colab --out runs/colab --resume\n", 137, "10"},
		{1, []string{"colab"}, "srun --kill-on-bad-exit=1 snug train colab --out runs/colab --resume\n", 1, ""},
		{0, nil, "", 2, ""},
	} {
		c := exec.Command(bash, append([]string{filepath.Join("slurm", "snug.sbatch")}, x.args...)...)
		c.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), fmt.Sprint("CODE=", x.code), "SLURM_JOB_ID=17", "SNUG_OUT=", "SLURM_RESTART_COUNT="+x.restarts)
		out, err := c.Output()
		code := 0
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			code = exit.ExitCode()
		} else if err != nil {
			t.Fatal(err)
		}
		if string(out) != x.want || code != x.result {
			t.Errorf("%v, srun ends with %d: %q and %d, want %q and %d", x.args, x.code, out, code, x.want, x.result)
		}
	}
}
