package openai

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/snug-ml/snug/inference"
	"github.com/snug-ml/snug/internal/few"
)

// mediaField is our own field for what accompanies the prompts of a request: an object
// whose values are a data URL or an array of them, by kind.
const mediaField = "media"

// mostFiles bounds the files of a kind.
const mostFiles = 256

// media reads what accompanies the prompts.
func (s *Service) media(f fields, q *request) error {
	var kinds map[string]json.RawMessage
	if err := f.take(mediaField, "an object of data URLs by kind", &kinds); err != nil {
		return err
	}
	files := map[string][]inference.MediaFile{}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		name := mediaField + "." + kind
		urls, ok := as[[]string](kinds[kind])
		if one, isOne := as[string](kinds[kind]); isOne {
			urls, ok = []string{one}, true
		}
		if !ok || len(urls) == 0 || len(urls) > mostFiles {
			return invalid(name, "want a data URL or an array of up to %d, got %s", mostFiles, few.Text(string(kinds[kind]), 60))
		}
		for i, url := range urls {
			raw, err := dataURL(url)
			if err != nil {
				return invalid(name, "file %d: %v", i+1, err)
			}
			files[kind] = append(files[kind], inference.MediaFile{Name: fmt.Sprint("file ", i+1), ReadSeeker: bytes.NewReader(raw)})
		}
	}
	s.decoding.Lock()
	defer s.decoding.Unlock()
	var err error
	q.text.Seen, err = s.engine.Language.Decode(files)
	var wrong *inference.MediaError
	if errors.As(err, &wrong) {
		return invalid(mediaField+"."+wrong.Kind, "%v", wrong.Err)
	}
	return err
}

// dataURL returns the content of data:TYPE;base64,CONTENT. The declared type is ignored:
// the content decides.
func dataURL(url string) ([]byte, error) {
	head, content, ok := strings.Cut(url, ",")
	if !ok || !strings.HasPrefix(head, "data:") || !strings.HasSuffix(head, ";base64") {
		return nil, fmt.Errorf("want data:TYPE;base64,CONTENT, got %s; URLs are not fetched", few.Text(url, 60))
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(content)
	if err != nil {
		return nil, fmt.Errorf("its base64 is invalid: %w", err)
	}
	return raw, nil
}
