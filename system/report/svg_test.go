package report

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
)

// TestWriteSVG: a file of charts is well-formed XML that contains every chart, whatever the names and numbers
// are.
func TestWriteSVG(t *testing.T) {
	var b strings.Builder
	err := WriteSVG(&b,
		Chart{X: "update", Y: `loss <&">`, Series: []Series{{Name: "a<b", X: []float64{1, 2, 3}, Y: []float64{3, math.NaN(), 1}}}},
		Chart{X: "update", Y: "empty"})
	if err != nil {
		t.Fatal(err)
	}
	d := xml.NewDecoder(strings.NewReader(b.String()))
	pictures := 0
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, b.String())
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "svg" {
			pictures++
		}
	}
	if pictures != 3 {
		t.Errorf("%d svg elements, want the file and two pictures", pictures)
	}
	if !strings.Contains(b.String(), "1 points are not finite") {
		t.Error("the point that is no number is not told of")
	}
}
