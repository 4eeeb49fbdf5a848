package cuda

import (
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/snug-ml/snug/engine/cuda/kernels"
)

// step is a function of kernels/steps.cu as clang compiled it: instructions on registers of its own, which a
// generated kernel inlines unchanged. So a function written in C++ computes the same wherever it is fused.
type step struct {
	name    string
	decl    []string // declarations of registers
	body    []string // instructions and labels
	params  int
	results int
}

// stepSets holds the steps that were parsed, by the version of the kernels and the target.
var stepSets sync.Map

// stepsOf returns a target's steps by name without "step_".
func stepsOf(target int) (map[string]*step, error) {
	key := fmt.Sprint(kernels.Version(), target)
	if steps, ok := stepSets.Load(key); ok {
		return steps.(map[string]*step), nil
	}
	text, err := kernels.Family(target, "steps")
	if err != nil {
		return nil, err
	}
	steps, err := parseSteps(text)
	if err == nil {
		stepSets.Store(key, steps)
	}
	return steps, err
}

// parseSteps reads the functions of a PTX module.
func parseSteps(text string) (map[string]*step, error) {
	steps := map[string]*step{}
	var s *step
	for _, line := range strings.Split(text, "\n") {
		if at := strings.Index(line, "//"); at >= 0 {
			line = line[:at]
		}
		line = strings.TrimSpace(line)
		switch {
		case line == "":
		case strings.HasPrefix(line, ".visible .func"):
			name := line[strings.LastIndex(line, " ")+1:]
			s = &step{name: strings.TrimSuffix(name, "(")}
			s.results = 1
			if _, array, ok := strings.Cut(line, "func_retval0["); ok {
				bytes, err := strconv.Atoi(array[:strings.IndexByte(array, ']')])
				if err != nil {
					return nil, fmt.Errorf("%s: %w", s.name, err)
				}
				s.results = bytes / 4
			}
		case s == nil || line == "{" || line == ")":
		case line == "}":
			if len(s.body) == 0 || s.body[len(s.body)-1] != "ret;" {
				return nil, fmt.Errorf("%s does not end by returning", s.name)
			}
			s.body = s.body[:len(s.body)-1]
			steps[strings.TrimPrefix(s.name, "step_")] = s
			s = nil
		case strings.HasPrefix(line, ".param"):
			s.params++
		case strings.HasPrefix(line, ".reg"):
			s.decl = append(s.decl, line)
		case line == "ret;" || !strings.HasPrefix(line, "ret"):
			s.body = append(s.body, line)
		}
	}
	for _, s := range steps {
		for _, line := range s.body {
			if line == "ret;" || strings.HasPrefix(line, "call") || strings.HasPrefix(line, ".local") {
				return nil, fmt.Errorf("%s: cannot be taken over because of %q", s.name, line)
			}
		}
	}
	return steps, nil
}

// emit writes the instructions of s with its parameters and results replaced by registers or constants of the
// caller, whose names must not begin with %p, %rs, %r, %rd, %f, %fd or %h. id makes its labels unique.
func (s *step) emit(w *strings.Builder, id int, args, results []string) error {
	if len(args) != s.params || len(results) != s.results {
		return fmt.Errorf("%s takes %d values and gives %d, not %d and %d", s.name, s.params, s.results, len(args), len(results))
	}
	w.WriteString("\t{\n")
	for _, d := range s.decl {
		fmt.Fprintf(w, "\t%s\n", d)
	}
	for _, line := range s.body {
		line = strings.ReplaceAll(line, "$L__", fmt.Sprintf("$L%d__", id))
		switch op, rest, _ := strings.Cut(line, " "); {
		case strings.HasPrefix(op, "ld.param."):
			// ld.param.f32 %f1, [step_gelu_param_0];
			reg, from, _ := strings.Cut(strings.TrimSpace(rest), ", ")
			k, err := strconv.Atoi(strings.TrimSuffix(from[strings.LastIndexByte(from, '_')+1:], "];"))
			if err != nil {
				return fmt.Errorf("%s: cannot read %q", s.name, line)
			}
			line = fmt.Sprintf("mov.%s %s, %s;", strings.TrimPrefix(op, "ld.param."), reg, args[k])
		case strings.HasPrefix(op, "st.param."):
			// st.param.v4.b32 [func_retval0+0], {%r1, %r2, %r3, %r4};
			to, from, _ := strings.Cut(strings.TrimSpace(rest), ", ")
			at, err := strconv.Atoi(strings.TrimSuffix(to[strings.IndexByte(to, '+')+1:], "]"))
			if err != nil {
				return fmt.Errorf("%s: cannot read %q", s.name, line)
			}
			typ := op[strings.LastIndexByte(op, '.')+1:]
			line = ""
			for i, r := range strings.Split(strings.Trim(from, "{};"), ",") {
				line += fmt.Sprintf("mov.%s %s, %s; ", typ, results[at/4+i], strings.TrimSpace(r))
			}
		}
		fmt.Fprintf(w, "\t%s\n", line)
	}
	w.WriteString("\t}\n")
	return nil
}
