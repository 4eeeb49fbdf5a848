package cli

import (
	"fmt"

	"github.com/snug-ml/snug/internal/table"
)

// table prints aligned columns; the first row is the header.
func (a *app) table(rows [][]string) error {
	_, err := fmt.Fprint(a.out, table.Format(rows))
	return err
}
