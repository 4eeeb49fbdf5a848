package hub

import (
	"crypto/sha1" //nolint:gosec // git names blobs by it
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"regexp"
)

var (
	sha256Tag = regexp.MustCompile(`^[0-9a-f]{64}$`)
	sha1Tag   = regexp.MustCompile(`^[0-9a-f]{40}$`)
	plainTag  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)
)

// blobName returns the cache's name for an ETag's content: the tag itself, as in
// huggingface_hub, unless that is not a safe name.
func (a about) blobName() string {
	if plainTag.MatchString(a.etag) {
		return a.etag
	}
	sum := sha256.Sum256([]byte(a.etag))
	return hex.EncodeToString(sum[:])
}

// digest returns the hash algorithm of the file's ETag, nil if it is not a hash: SHA-256
// of large files, git's SHA-1 (which covers the size) of others.
func (a about) digest() hash.Hash {
	switch {
	case sha256Tag.MatchString(a.etag):
		return sha256.New()
	case sha1Tag.MatchString(a.etag) && a.size >= 0:
		h := sha1.New() //nolint:gosec // as above
		fmt.Fprintf(h, "blob %d\x00", a.size)
		return h
	}
	return nil
}

// verify compares what was received with what the hub announced.
func (a about) verify(h hash.Hash, size int64) error {
	if a.size >= 0 && size != a.size {
		return fmt.Errorf("%d bytes were received, the hub says %d", size, a.size)
	}
	if h == nil {
		return nil
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != a.etag {
		return fmt.Errorf("the content has the hash %s, the hub says %s", got, a.etag)
	}
	return nil
}
