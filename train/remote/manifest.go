package remote

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"strings"

	"github.com/snug-ml/snug/internal/strictjson"
	"github.com/snug-ml/snug/train/checkpoint"
	"github.com/snug-ml/snug/train/rundir"
)

// UploadFile is the object that completes an uploaded checkpoint.
const UploadFile = "upload.json"

const (
	uploadFormat  = "snug-upload"
	uploadVersion = 1
	maxUpload     = 1 << 20 // bytes of an upload.json that are read
)

// Upload lists the objects of an uploaded checkpoint.
type Upload struct {
	Format  string             `json:"format"`
	Version int                `json:"version"`
	Update  int64              `json:"update"`
	Run     string             `json:"run,omitempty"` // of the checkpoint
	Created string             `json:"created"`       // of the checkpoint
	Metric  *checkpoint.Metric `json:"metric,omitempty"`
	Files   []UploadedFile     `json:"files"`
	SHA256  string             `json:"sha256"` // of this text with the field empty
}

// UploadedFile is a file of the checkpoint and its object.
type UploadedFile struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
	Packed bool   `json:"packed,omitempty"`
	Stored int64  `json:"stored"` // size of the object
	Sum    string `json:"sum"`    // SHA-256 of the object
}

// object is the key below the checkpoint's folder.
func (f UploadedFile) object() string {
	if f.Packed {
		return f.Name + PackSuffix
	}
	return f.Name
}

// Bytes returns the size of the objects.
func (u *Upload) Bytes() int64 {
	n := int64(0)
	for _, f := range u.Files {
		n += f.Stored
	}
	return n
}

func (u *Upload) encode() ([]byte, error) {
	u.SHA256 = ""
	text, err := u.text()
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	u.SHA256 = hex.EncodeToString(sum[:])
	return u.text()
}

func (u *Upload) text() ([]byte, error) {
	text, err := json.MarshalIndent(u, "", " ")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", UploadFile, err)
	}
	return append(text, '\n'), nil
}

// parseUpload reads an upload.json and checks it: its own hash, and that no
// name leads out of the folder it will be written to.
func parseUpload(text []byte) (*Upload, error) {
	var u Upload
	if err := json.Unmarshal(text, &u); err != nil {
		return nil, fmt.Errorf("%s is not JSON of the right form: %w", UploadFile, strictjson.Explain(err))
	}
	if u.Format != uploadFormat || u.Version != uploadVersion {
		return nil, fmt.Errorf("%s has format %q version %d, this snug reads %q version %d", UploadFile, u.Format, u.Version, uploadFormat, uploadVersion)
	}
	claimed := u.SHA256
	canonical, err := u.encode()
	if err != nil {
		return nil, err
	}
	if claimed != u.SHA256 || !bytes.Equal(canonical, text) {
		return nil, fmt.Errorf("%s does not have the SHA-256 it claims: it was changed after it was written", UploadFile)
	}
	if u.Update < 0 {
		return nil, fmt.Errorf("%s has the update %d", UploadFile, u.Update)
	}
	if !rundir.ValidID(u.Run) {
		return nil, fmt.Errorf("%s names the run %q, which is not a run's identity", UploadFile, u.Run)
	}
	seen := map[string]bool{}
	for _, f := range u.Files {
		if f.Name == "" || f.Name == "." || !filepath.IsLocal(f.Name) || strings.ContainsAny(f.Name, `/\`) || f.Name == UploadFile {
			return nil, fmt.Errorf("%s: file name %q is not a plain name inside the checkpoint", UploadFile, f.Name)
		}
		if seen[f.Name] {
			return nil, fmt.Errorf("%s: file %s is listed twice", UploadFile, f.Name)
		}
		seen[f.Name] = true
		if f.Size < 0 || f.Stored < 0 {
			return nil, fmt.Errorf("%s: file %s has a negative size", UploadFile, f.Name)
		}
	}
	if !seen[checkpoint.ManifestFile] {
		return nil, fmt.Errorf("%s does not list %s", UploadFile, checkpoint.ManifestFile)
	}
	return &u, nil
}

// damagedError means that the upload is not an intact checkpoint, as opposed to a
// remote that cannot be reached.
type damagedError struct{ error }

func (e damagedError) Unwrap() error { return e.error }

func isDamaged(err error) bool {
	var damaged damagedError
	return errors.As(err, &damaged)
}

// readUpload fetches the upload.json of an uploaded checkpoint.
func readUpload(ctx context.Context, r Remote, name string) (*Upload, error) {
	body, err := r.Get(ctx, path.Join(name, UploadFile), 0)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(body, maxUpload+1))
	if err := errors.Join(err, body.Close()); err != nil {
		return nil, err
	}
	if len(text) > maxUpload {
		return nil, damagedError{fmt.Errorf("%s is larger than %d bytes", UploadFile, maxUpload)}
	}
	u, err := parseUpload(text)
	if err != nil {
		return nil, damagedError{err}
	}
	if checkpoint.Name(u.Update) != name {
		return nil, damagedError{fmt.Errorf("%s has update %d: the folder was renamed", UploadFile, u.Update)}
	}
	return u, nil
}

// check asks the remote whether every object exists with the right size and, if it stores
// one, with the right hash. If not, isDamaged is true of the error.
func (u *Upload) check(ctx context.Context, r Remote, name string) error {
	for _, f := range u.Files {
		key := path.Join(name, f.object())
		have, err := r.Stat(ctx, key)
		if errors.Is(err, fs.ErrNotExist) {
			return damagedError{fmt.Errorf("object %s is missing", key)}
		}
		if err != nil {
			return err
		}
		if have.Size != f.Stored || have.SHA256 != "" && have.SHA256 != f.Sum {
			return damagedError{&MismatchError{key, f.Stored, f.Sum, have.Size, have.SHA256}}
		}
	}
	return nil
}
