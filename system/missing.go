package system

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/snug-ml/snug/config"
)

// MissingFiles rejects a preset whose files under a key do not exist, because users have to supply their own.
// Any other problem with files is reported when they are read.
func MissingFiles(c *config.Config, key string, patterns []string) error {
	if o, _ := c.Origin(key); o.Kind != config.Preset {
		return nil
	}
	for _, p := range patterns {
		at := p
		for strings.ContainsAny(at, "*?[") {
			at = filepath.Dir(at)
		}
		if _, err := os.Stat(at); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s: the preset reads %s, and there is no such file here: name yours with --%s", key, p, key)
		}
	}
	return nil
}
