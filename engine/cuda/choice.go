package cuda

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snug-ml/snug/engine/cuda/cublaslt"
	"github.com/snug-ml/snug/internal/durable"
	"github.com/snug-ml/snug/internal/regular"
	"github.com/snug-ml/snug/internal/strictjson"
)

// Choices record what computes each product of a program: snug's kernels or an algorithm of cuBLASLt. The
// choice is measured, so two measurements may choose differently and give different sums: therefore choices
// are kept, and stored in checkpoints.
type Choices struct {
	Maker    Maker    `json:"maker"`
	Products []Choice `json:"products"` // sorted by name
}

// Maker is what measurements and algorithms are valid for.
type Maker struct {
	Card       string `json:"card"`
	Capability int    `json:"capability"`
	SMs        int    `json:"multiprocessors"`
	// Library is cuBLASLt's version; empty: no product was measured.
	Library string `json:"library"`
}

// Choice says what computes a product.
type Choice struct {
	Product string `json:"product"`
	// Algorithm is cuBLASLt's algorithm, Workspace the bytes that it needs; nil: snug's kernels compute the
	// product.
	Algorithm []byte `json:"algorithm,omitempty"`
	Workspace int64  `json:"workspace,omitempty"`
	// Ours and Library are the measured times in microseconds; 0: not measured.
	Ours    float64 `json:"snug_us,omitempty"`
	Library float64 `json:"cublaslt_us,omitempty"`
}

// ParseChoices reads what [Choices.JSON] wrote.
func ParseChoices(text []byte) (*Choices, error) {
	c := &Choices{}
	if err := strictjson.Unmarshal(text, c); err != nil {
		return nil, err
	}
	for i, p := range c.Products {
		switch {
		case i > 0 && c.Products[i-1].Product >= p.Product:
			return nil, fmt.Errorf("matmul %q comes after %q: want each once, sorted", p.Product, c.Products[i-1].Product)
		case len(p.Algorithm) != 0 && len(p.Algorithm) != len(cublaslt.Algorithm{}):
			return nil, fmt.Errorf("matmul %q: an algorithm has %d bytes, not %d", p.Product, len(cublaslt.Algorithm{}), len(p.Algorithm))
		case p.Workspace < 0:
			return nil, fmt.Errorf("matmul %q: a workspace of %d bytes", p.Product, p.Workspace)
		}
	}
	return c, nil
}

// JSON encodes the choices as a file.
func (c *Choices) JSON() []byte {
	text, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		panic(err) // times are finite
	}
	return append(text, '\n')
}

// byLibrary is the number of products that cuBLASLt computes.
func (c *Choices) byLibrary() (n int) {
	for _, p := range c.Products {
		if len(p.Algorithm) > 0 {
			n++
		}
	}
	return n
}

// String says how many products cuBLASLt computes, with a hash of the algorithms; it is empty where cuBLASLt
// computes none. Times are not part of it.
func (c *Choices) String() string {
	n := c.byLibrary()
	if n == 0 {
		return ""
	}
	h := sha256.New()
	for _, p := range c.Products {
		_, _ = fmt.Fprintf(h, "%q %x\n", p.Product, p.Algorithm)
	}
	return fmt.Sprintf("%d of %d shapes of matmuls by cuBLASLt %s (%s)", n, len(c.Products), c.Maker.Library, hex.EncodeToString(h.Sum(nil)[:4]))
}

// known maps products to choices.
type known map[string]Choice

func (k known) choices(m Maker) *Choices {
	c := &Choices{Maker: m, Products: []Choice{}}
	for _, name := range slices.Sorted(maps.Keys(k)) {
		c.Products = append(c.Products, k[name])
	}
	return c
}

func (c *Choices) known() known {
	k := known{}
	for _, p := range c.Products {
		k[p.Product] = p
	}
	return k
}

// kept is a file in the user's cache folder with the choices measured for a maker with one driver and one
// version of snug's kernels; empty: nothing is kept.
type kept string

// keptIn names the file in a folder; kernels identifies the version of snug's kernels.
func keptIn(folder string, m Maker, driver int, kernels string) kept {
	if folder == "" {
		return ""
	}
	h := sha256.Sum256(fmt.Appendf(nil, "%q %d %s", fmt.Sprint(m), driver, kernels))
	return kept(filepath.Join(folder, "matmuls-"+hex.EncodeToString(h[:8])+".json"))
}

// read returns the stored choices; a file that is damaged, or for another maker, counts as empty.
func (k kept) read(m Maker) known {
	if k == "" {
		return known{}
	}
	text, err := regular.Read(string(k), regular.Text)
	if err != nil {
		return known{}
	}
	c, err := ParseChoices(text)
	if err != nil || c.Maker != m {
		return known{}
	}
	return c.known()
}

// add merges choices into the file. Where that fails they are measured again next time.
func (k kept) add(m Maker, now known) {
	if k == "" {
		return
	}
	all := k.read(m)
	maps.Copy(all, now)
	if os.MkdirAll(filepath.Dir(string(k)), 0o777) == nil {
		_ = durable.Replace(string(k), all.choices(m).JSON())
	}
}

// describe formats one choice for people.
func (c Choice) describe() string {
	by := "snug's kernels"
	if len(c.Algorithm) > 0 {
		by = "cuBLASLt"
	}
	if c.Ours == 0 {
		return fmt.Sprintf("%s: %s", c.Product, by)
	}
	other := "none of cuBLASLt"
	if c.Library > 0 {
		other = fmt.Sprintf("cuBLASLt %.1f µs", c.Library)
	}
	return fmt.Sprintf("%s: %s (snug %.1f µs, %s)", c.Product, by, c.Ours, other)
}

// Table formats the choices for people, one a line.
func (c *Choices) Table() string {
	lines := make([]string, len(c.Products))
	for i, p := range c.Products {
		lines[i] = p.describe()
	}
	return strings.Join(lines, "\n")
}
