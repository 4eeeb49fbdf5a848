// Command mca predicts the speed of the innermost loops of compiled functions
// with LLVM's models of processors.
//
//	GOARCH=arm64 go test -c -o /tmp/gemm.test ./engine/cpu/gemm
//	go -C tools/asm run ./mca -cpus neoverse-n1,neoverse-v2 -count fmla /tmp/gemm.test kernF32x6NEON ...
//
// It needs llvm-objdump-19 and llvm-mca-19. Cycles are those of a turn of the loop
// when everything is in the first-level cache.
package main

import (
	"flag"
	"fmt"
	"log"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
)

func main() {
	log.SetFlags(0)
	cpus := flag.String("cpus", "neoverse-n1,neoverse-v1,neoverse-v2,apple-m1", "processors, as -mcpu of LLVM")
	count := flag.String("count", "", "what instructions to count that begin so; empty: all")
	flag.Parse()
	if flag.NArg() < 2 {
		log.Fatal("mca: want a program and the names of functions in it")
	}
	fmt.Printf("| function | instructions a turn | %s |%s\n", orAll(*count), strings.ReplaceAll(" "+*cpus+" |", ",", " | "))
	for _, function := range flag.Args()[1:] {
		loop, err := innermost(flag.Arg(0), function)
		if err != nil {
			log.Fatalf("mca: %s: %v", function, err)
		}
		counted := 0
		for _, i := range loop {
			if strings.HasPrefix(i, *count) {
				counted++
			}
		}
		fmt.Printf("| %s | %d | %d |", function, len(loop), counted)
		for cpu := range strings.SplitSeq(*cpus, ",") {
			cycles, err := predict(cpu, loop)
			if err != nil {
				log.Fatalf("mca: %s: %s: %v", function, cpu, err)
			}
			fmt.Printf(" %.1f (%.2f a cycle) |", cycles, float64(counted)/cycles)
		}
		fmt.Println()
	}
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

// predict returns the cycles of a turn of the loop.
func predict(cpu string, loop []string) (float64, error) {
	const turns = 200
	run := func(turns int) (float64, error) {
		cmd := exec.Command("llvm-mca-19", "-mtriple=aarch64", "-mcpu="+cpu, fmt.Sprintf("-iterations=%d", turns), "-resource-pressure=false", "-instruction-info=false")
		cmd.Stdin = strings.NewReader(strings.Join(loop, "\n"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			return 0, fmt.Errorf("llvm-mca-19: %w\n%s", err, out)
		}
		m := regexp.MustCompile(`Total Cycles:\s+(\d+)`).FindSubmatch(out)
		if m == nil {
			return 0, fmt.Errorf("llvm-mca-19 gives no cycles:\n%s", out)
		}
		return strconv.ParseFloat(string(m[1]), 64)
	}
	once, err := run(turns)
	if err != nil {
		return 0, err
	}
	twice, err := run(2 * turns)
	return (twice - once) / turns, err
}
