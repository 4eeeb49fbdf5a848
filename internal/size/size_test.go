package size_test

import (
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/snug-ml/snug/internal/size"
)

// A product is exact, or the largest int64 if it would be larger.
func TestProduct(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ns := rapid.SliceOfN(rapid.OneOf(rapid.Int64Range(0, 9), rapid.Int64Min(0)), 0, 6).Draw(t, "factors")
		want := big.NewInt(1)
		for _, n := range ns {
			want.Mul(want, big.NewInt(n))
		}
		if want.Cmp(big.NewInt(math.MaxInt64)) > 0 {
			want.SetInt64(math.MaxInt64)
		}
		if got := size.Product(ns...); got != want.Int64() {
			t.Errorf("product of %v is %d, want %v", ns, got, want)
		}
	})
	if got := size.Product(math.MinInt, 3); got != 0 {
		t.Errorf("product with a negative number is %d", got)
	}
}

func TestBytes(t *testing.T) {
	for n, want := range map[size.Bytes]string{
		0: "0 B", 1023: "1023 B", 1024: "1 KiB", 1536: "1.50 KiB", 512 << 20: "512 MiB", 1023 << 20: "1.00 GiB",
		15_835_594_752: "14.75 GiB", -3 << 30: "-3 GiB", 1 << 62: "4096 PiB",
	} {
		if got := n.String(); got != want {
			t.Errorf("%d: %s, want %s", int64(n), got, want)
		}
	}
}

func TestThousands(t *testing.T) {
	for n, want := range map[int64]string{1_414_455_296: "1,414,455,296", -1234: "-1,234", -123: "-123", 999: "999", 1000: "1,000", 0: "0"} {
		if got := size.Thousands(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

func TestOf(t *testing.T) {
	for _, c := range []struct {
		n         int
		one, want string
	}{
		{0, "thread", "0 threads"}, {1, "thread", "1 thread"}, {2, "thread", "2 threads"}, {1, "process", "1 process"},
		{8, "process", "8 processes"}, {3, "micro-batch", "3 micro-batches"}, {2, "retry", "2 retries"}, {2, "day", "2 days"},
		{1, "field of the state", "1 field of the state"}, {-1, "row", "-1 rows"},
		{4000, "row", "4,000 rows"},
	} {
		if got := size.Of(c.n, c.one); got != c.want {
			t.Errorf("%d of %s: %q, want %q", c.n, c.one, got, c.want)
		}
	}
}
