package config

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"time"
)

// Quantity is something that a number counts, with a bound above anything that a machine can hold or a run
// can last. Every number that sizes something (an allocation, a loop, threads) names its quantity in the tag
// of, so that absurd values are rejected without trying them.
type Quantity struct {
	Most   float64
	Reason string
}

// quantities is the table of bounds. Products below them can still be too large: tensor sizes are checked
// when a graph is built, and the plan counts what a run needs.
var quantities = map[string]Quantity{
	"updates":     {1e9, "a billion updates of 10 ms take four months"},
	"batches":     {1e9, "a billion micro-batches of 10 ms take four months"},
	"rows":        {65_536, "more rows go into an update by gradient_accumulation_steps"},
	"parts":       {256, "each part adds its operations to the program, which takes longer to compile"},
	"micro-steps": {65_536, "an update of 65536 micro-batches is larger than any that trains better for it"},
	"positions":   {1 << 20, "attention compares each position with every other: a million make 4 TB a head"},
	"tokens":      {1 << 20, "a million tokens at a time"},
	"corpus":      {1e14, "a hundred trillion tokens: no collection of text has more"},
	"width":       {1 << 18, "a square matrix of that width holds 256 GiB"},
	"layers":      {1024, "each layer is compiled separately: a plan with more takes over a minute"},
	"heads":       {1 << 14, "heads divide the width"},
	"experts":     {4096, "each expert has weights of its own in each layer"},
	"unrolled":    {64, "each step is compiled as code of its own"},
	"vocabulary":  {1 << 22, "four million tokens: no language has more, and each has a row of weights"},
	"table":       {1 << 28, "a table of 268 million rows takes 4 GiB with its moments at one column"},
	"threads":     {1024, "more than any machine has cores"},
	"processes":   {1024, "more than any machine has cores"},
	"machines":    {4096, "more than any cluster gives one run"},
	"pixels":      {1 << 14, "an image of 16384 by 16384 takes 1 GiB"},
	"frames":      {4096, "each frame is an image in memory"},
	"samples":     {1 << 24, "17 minutes of sound at 16 kHz"},
	"flights":     {1e5, "a hundred thousand flights"},
	"examples":    {1e9, "a billion examples"},
	"beams":       {1024, "each beam has a cache of its own"},
	"repeats":     {1000, "an epoch lists each repeat"},
	"capacity":    {1024, "an expert has room for that many times its share"},
	"checkpoints": {1e6, "a million checkpoints"},
	"requests":    {1 << 20, "each request that waits holds a connection"},
	"bytes":       {1 << 40, "a TiB is in memory at once"},
	"duration":    {float64(30 * 24 * time.Hour), "30 days"},
	"seed":        {math.MaxUint64, "any number is a seed"},
}

// QuantityOf returns an entry of the table. An unknown name is a programming error.
func QuantityOf(name string) *Quantity {
	q, ok := quantities[name]
	if !ok {
		panic(fmt.Sprintf("config: no quantity %q", name))
	}
	return &q
}

// Exceeds returns the bound and its reason if text is a number larger than q allows, or "" if it is not.
func (q *Quantity) Exceeds(text string, t reflect.Type) string {
	var x float64
	if t == durationType {
		d, err := time.ParseDuration(text)
		if err != nil {
			return ""
		}
		x = float64(d)
	} else {
		// For a number beyond float64, ParseFloat returns infinity and an error.
		x, _ = strconv.ParseFloat(text, 64)
	}
	if !(x > q.Most) {
		return ""
	}
	most := strconv.FormatFloat(q.Most, 'f', -1, 64)
	switch {
	case t == durationType:
		most = time.Duration(q.Most).String()
	case q.Most == math.MaxUint64: // which float64 rounds
		most = strconv.FormatUint(math.MaxUint64, 10)
	}
	return fmt.Sprintf("at most %s (%s)", most, q.Reason)
}

// The range of normal float32 numbers, which programs compute with. Anything nearer to 0, but not 0, or
// beyond it would become 0 or infinite.
const (
	leastFloat = 0x1p-126
	mostFloat  = math.MaxFloat32
)

// Unheld returns the bound for a number that float32 cannot represent; "" if it can.
func Unheld(x float64) string {
	switch {
	case x != 0 && math.Abs(x) < leastFloat:
		return fmt.Sprintf("0 or at least %.3g in size (float32 takes less for 0)", leastFloat)
	case math.Abs(x) > mostFloat:
		return fmt.Sprintf("at most %.3g in size (float32 takes more for infinite)", mostFloat)
	}
	return ""
}
