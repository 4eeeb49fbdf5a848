// Command mca predicts the speed of the innermost loops of compiled functions
// with LLVM's models of processors.
//
//	GOARCH=arm64 go test -c -o /tmp/gemm.test ./engine/cpu/gemm
//	go -C tools/asm run ./mca -count fmla /tmp/gemm.test kernF32x6NEON ...
//	GOARCH=arm64 go test -c -o /tmp/simd.test ./internal/simd
//	go -C tools/asm run ./mca -memory /tmp/simd.test '.*NEON'
//
// It needs llvm-nm-19, llvm-objdump-19 and llvm-mca-19. Cycles are those of a turn of the
// loop when everything is in the first-level cache. With -memory they are held against
// those of its loads and stores, of 16 bytes, at one of each a cycle: where a turn takes more,
// the unit follows that is busy for as long, or else that nothing is, and instructions wait
// for each other's results.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"log"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

func main() {
	log.SetFlags(0)
	cpus := flag.String("cpus", "neoverse-n1,neoverse-n2,neoverse-v1,neoverse-v2", "processors, as -mcpu of LLVM")
	count := flag.String("count", "", "what instructions to count that begin so; empty: all")
	memory := flag.Bool("memory", false, "hold cycles against loads and stores")
	flag.Parse()
	if flag.NArg() < 2 {
		log.Fatal("mca: want a program and the names of functions in it, or expressions that they match")
	}
	names, err := functions(flag.Arg(0), flag.Args()[1:])
	if err != nil {
		log.Fatalf("mca: %v", err)
	}
	columns := []string{"function", "instructions a turn"}
	if *memory {
		columns = append(columns, "loads", "stores")
	} else {
		columns = append(columns, orAll(*count))
	}
	columns = append(columns, strings.Split(*cpus, ",")...)
	fmt.Printf("| %s |\n|%s\n", strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
	for _, name := range names {
		loop, err := innermost(flag.Arg(0), name)
		if err != nil {
			log.Fatalf("mca: %s: %v", name, err)
		}
		counted := 0
		for _, i := range loop {
			if strings.HasPrefix(i, *count) {
				counted++
			}
		}
		loads, stores := accesses(loop)
		row := []string{name, fmt.Sprint(len(loop)), fmt.Sprint(counted)}
		if *memory {
			row = []string{name, fmt.Sprint(len(loop)), fmt.Sprint(loads), fmt.Sprint(stores)}
		}
		for cpu := range strings.SplitSeq(*cpus, ",") {
			p, err := predict(cpu, loop)
			if err != nil && !errors.Is(err, errLacks) {
				log.Fatalf("mca: %s: %s: %v", name, cpu, err)
			}
			switch {
			case err != nil:
				row = append(row, "lacks instructions")
			case !*memory:
				row = append(row, fmt.Sprintf("%.1f (%.2f a cycle)", p.cycles, float64(counted)/p.cycles))
			case p.cycles <= 1.05*float64(max(loads, stores)):
				row = append(row, fmt.Sprintf("%.1f", p.cycles))
			default:
				row = append(row, fmt.Sprintf("%.1f %s", p.cycles, p.bound()))
			}
		}
		fmt.Printf("| %s |\n", strings.Join(row, " | "))
	}
}

// functions are those of a program that have one of the names or match one.
func functions(program string, like []string) (all []string, err error) {
	out, err := exec.Command("llvm-nm-19", program).Output()
	if err != nil {
		return nil, fmt.Errorf("the symbols of %s: %w", program, err)
	}
	var known []string // of this repository
	for _, m := range regexp.MustCompile(`(?m) [tT] \S*snug-ml/snug\S*\.(\w+)\.abi0$`).FindAllSubmatch(out, -1) {
		known = append(known, string(m[1]))
	}
	slices.Sort(known)
	for _, l := range like {
		e, err := regexp.Compile("^(?:" + l + ")$")
		if err != nil {
			return nil, err
		}
		before := len(all)
		for _, name := range slices.Compact(known) {
			if e.MatchString(name) {
				if _, err := innermost(program, name); err != nil && name != l {
					continue // it has no loop
				}
				all = append(all, name)
			}
		}
		if len(all) == before {
			return nil, fmt.Errorf("%s has no function with a loop that matches %s", program, l)
		}
	}
	return all, nil
}

// accesses counts the loads and stores of a loop, those of two registers twice, but not of
// constants.
func accesses(loop []string) (loads, stores int) {
	for _, i := range loop {
		n := 1
		if strings.HasPrefix(i, "ldp") || strings.HasPrefix(i, "stp") {
			n = 2
		}
		switch {
		case strings.Contains(i, "[x26"): // package arm64 keeps them there
		case strings.HasPrefix(i, "ld"):
			loads += n
		case strings.HasPrefix(i, "st"):
			stores += n
		}
	}
	return loads, stores
}

func orAll(count string) string {
	if count == "" {
		return "all"
	}
	return count
}

var (
	line   = regexp.MustCompile(`^\s*([0-9a-f]+):\s+(.*)$`)
	branch = regexp.MustCompile(`^(?:b\.\w+|cbn?z\s+\w+,|tbn?z\s+\w+, #\w+,)\s+0x([0-9a-f]+)`)
)

// innermost returns the longest loop of a function that contains no other loop.
func innermost(program, function string) ([]string, error) {
	names, err := exec.Command("llvm-nm-19", program).Output()
	if err != nil {
		return nil, fmt.Errorf("the symbols of %s: %w", program, err)
	}
	symbol := regexp.MustCompile(`(?m) (\S*\.` + regexp.QuoteMeta(function) + `\.abi0)$`).FindSubmatch(names)
	if symbol == nil {
		return nil, fmt.Errorf("%s has no such function", program)
	}
	out, err := exec.Command("llvm-objdump-19", "-d", "--no-show-raw-insn", "--disassemble-symbols="+string(symbol[1]), program).Output()
	if err != nil {
		return nil, fmt.Errorf("its code: %w", err)
	}
	type instruction struct {
		at   uint64
		text string
	}
	var code []instruction
	index := map[uint64]int{}
	for l := range strings.Lines(string(out)) {
		if m := line.FindStringSubmatch(strings.TrimRight(l, "\n")); m != nil {
			at, err := strconv.ParseUint(m[1], 16, 64)
			if err != nil {
				return nil, err
			}
			text, _, _ := strings.Cut(strings.ReplaceAll(m[2], "\t", " "), " <")
			index[at] = len(code)
			code = append(code, instruction{at, text})
		}
	}
	first, last := -1, -1
	inner := -1 // where the last backward branch's loop began
	for i, c := range code {
		m := branch.FindStringSubmatch(c.text)
		if m == nil {
			continue
		}
		to, err := strconv.ParseUint(m[1], 16, 64)
		if err != nil {
			return nil, err
		}
		start, ok := index[to]
		if !ok || start > i {
			continue
		}
		if start <= inner { // it contains that loop
			continue
		}
		inner = start
		if i-start > last-first {
			first, last = start, i
		}
	}
	if first < 0 {
		return nil, fmt.Errorf("it has no loop")
	}
	var loop []string
	for _, c := range code[first : last+1] {
		if m := branch.FindStringSubmatch(c.text); m != nil {
			// The model does not follow branches; their target is of no interest.
			c.text = strings.TrimSuffix(c.text, "0x"+m[1]) + "0"
		}
		loop = append(loop, c.text)
	}
	return loop, nil
}

// A prediction is what a model says of a turn of a loop.
type prediction struct {
	cycles float64
	unit   string  // the busiest kind of unit
	busy   float64 // cycles that all of that kind are
}

// bound names what the turn takes its time for.
func (p prediction) bound() string {
	if p.busy < 0.9*p.cycles {
		return "results"
	}
	return p.unit
}

// errLacks means that a processor does not run the loop.
var errLacks = errors.New("the processor lacks instructions")

// predict asks for the cycles of a turn of the loop.
func predict(cpu string, loop []string) (p prediction, err error) {
	const turns = 200
	run := func(turns int) (cycles float64, text string, err error) {
		cmd := exec.Command("llvm-mca-19", "-mtriple=aarch64", "-mcpu="+cpu, fmt.Sprintf("-iterations=%d", turns), "-instruction-info=false")
		cmd.Stdin = strings.NewReader(strings.Join(loop, "\n"))
		out, err := cmd.CombinedOutput()
		if bytes.Contains(out, []byte("instruction requires")) {
			return 0, "", errLacks
		}
		if err != nil {
			return 0, "", fmt.Errorf("llvm-mca-19: %w\n%s", err, out)
		}
		m := regexp.MustCompile(`Total Cycles:\s+(\d+)`).FindSubmatch(out)
		if m == nil {
			return 0, "", fmt.Errorf("llvm-mca-19 gives no cycles:\n%s", out)
		}
		cycles, err = strconv.ParseFloat(string(m[1]), 64)
		return cycles, string(out), err
	}
	once, _, err := run(turns)
	if err != nil {
		return p, err
	}
	twice, text, err := run(2 * turns)
	if err != nil {
		return p, err
	}
	p.cycles = (twice - once) / turns
	p.unit, p.busy, err = busiest(text)
	return p, err
}

// busiest reads the kind of unit that a turn keeps busy for the longest, of what llvm-mca
// says of each unit.
func busiest(text string) (unit string, busy float64, err error) {
	names := regexp.MustCompile(`(?m)^\[[\d.]+\]\s+- \w*?Unit(\w+)$`).FindAllStringSubmatch(text, -1)
	pressure := regexp.MustCompile(`per iteration:\n.*\n(.*)\n`).FindStringSubmatch(text)
	if pressure == nil {
		return "", 0, fmt.Errorf("llvm-mca-19 says nothing of units:\n%s", text)
	}
	values := strings.Fields(pressure[1])
	if len(values) != len(names) {
		return "", 0, fmt.Errorf("llvm-mca-19 names %d units and gives %d figures:\n%s", len(names), len(values), text)
	}
	for i, v := range values {
		if v == "-" {
			continue
		}
		x, err := strconv.ParseFloat(v, 64)
		if err != nil {
			return "", 0, err
		}
		if x > busy {
			unit, busy = names[i][1], x
		}
	}
	return unit, busy, nil
}
