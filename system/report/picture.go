package report

import (
	"bytes"
	"fmt"
)

// File is the figure as a file of its own, in light colors: "svg".
func (f Figure) File(format string) ([]byte, error) {
	if format != "svg" {
		return nil, fmt.Errorf("report: no images in format %q", format)
	}
	var b bytes.Buffer
	err := writeSVG(&b, f.Drawing)
	return b.Bytes(), err
}
