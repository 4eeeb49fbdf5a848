package report

import (
	"bytes"
	"fmt"
)

// File returns the figure as a separate file in light colors. The only format is "svg".
func (f Figure) File(format string) ([]byte, error) {
	if format != "svg" {
		return nil, fmt.Errorf("report: no images in format %q", format)
	}
	var b bytes.Buffer
	err := writeSVG(&b, f.Drawing)
	return b.Bytes(), err
}
