package remote

import (
	"cmp"
	"context"
	"crypto/md5" //nolint:gosec // the protocol's checksum, beside SHA-256
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// Limits of the S3 protocol.
const (
	minPart     = 5 << 20
	maxParts    = 10_000
	defaultPart = 16 << 20
)

// sumKey is the user metadata that carries the SHA-256 of an object.
const sumKey = "Sha256"

type s3Remote struct {
	scheme, bucket, prefix string
	part                   int64
	core                   *minio.Core
}

func newS3(scheme, bucket, prefix string, c Config) (Remote, error) {
	host, secure, err := parseEndpoint(c.Endpoint)
	if err != nil {
		return nil, err
	}
	keys := credentials.NewStaticV4(c.AccessKey, c.SecretKey, c.SessionToken)
	if c.AccessKey == "" {
		keys = credentials.NewChainCredentials([]credentials.Provider{&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}})
	}
	transport, err := minio.DefaultTransport(secure)
	if err != nil {
		return nil, fmt.Errorf("remote: %w", err)
	}
	idle := cmp.Or(c.idle, idleLimit)
	core, err := minio.NewCore(host, &minio.Options{
		Creds: keys, Secure: secure, Region: c.Region, Transport: &watched{transport, idle},
		MaxRetries: 1, // the retrier above knows more
	})
	if err != nil {
		return nil, fmt.Errorf("remote: %s://%s: %w", scheme, bucket, err)
	}
	part := c.PartSize
	if part == 0 {
		part = defaultPart
	}
	if part < minPart {
		return nil, fmt.Errorf("remote: part size %d is below the protocol's smallest, %d", part, minPart)
	}
	return &s3Remote{scheme, bucket, prefix, part, core}, nil
}

func (r *s3Remote) String() string { return r.scheme + "://" + path.Join(r.bucket, r.prefix) }

func (r *s3Remote) key(key string) string { return path.Join(r.prefix, key) }

// partSize grows for objects that would have too many parts.
func (r *s3Remote) partSize(size int64) int64 {
	return max(r.part, (size+maxParts-1)/maxParts)
}

// piece is a part of an object with its checksums.
type piece struct {
	number       int // from 1
	offset, size int64
	md5, sha256  []byte
}

// pieces cuts an object; one that fits in a single part has one piece.
func pieces(ctx context.Context, src io.ReaderAt, size, part int64) ([]piece, error) {
	var list []piece
	for off := int64(0); off < size || off == 0; off += part {
		p := piece{number: len(list) + 1, offset: off, size: min(part, size-off)}
		m, s := md5.New(), sha256.New() //nolint:gosec // see the import
		if _, err := copyContext(ctx, []hash.Hash{m, s}, io.NewSectionReader(src, off, p.size)); err != nil {
			return nil, err
		}
		p.md5, p.sha256 = m.Sum(nil), s.Sum(nil)
		list = append(list, p)
	}
	return list, nil
}

func copyContext(ctx context.Context, hashes []hash.Hash, r io.Reader) (n int64, err error) {
	buf := make([]byte, 1<<20)
	for {
		k, err := r.Read(buf)
		for _, h := range hashes {
			h.Write(buf[:k])
		}
		n += int64(k)
		if err == io.EOF {
			return n, nil
		}
		if err := errors.Join(err, ctx.Err()); err != nil {
			return n, err
		}
	}
}

// etag returns what the protocol computes for an object of these pieces.
func etag(list []piece, multipart bool) string {
	if !multipart {
		return hex.EncodeToString(list[0].md5)
	}
	h := md5.New() //nolint:gosec // see the import
	for _, p := range list {
		h.Write(p.md5)
	}
	return fmt.Sprintf("%x-%d", h.Sum(nil), len(list))
}

func (r *s3Remote) Put(ctx context.Context, key string, src io.ReaderAt, size int64, sum string, how PutOptions) error {
	if how.Sessions == nil {
		how.Sessions = memorySessions{}
	}
	part := r.partSize(size)
	multipart := size > part
	list, err := pieces(ctx, src, size, part)
	if err != nil {
		return err
	}
	tag := etag(list, multipart)
	err = r.verify(ctx, key, size, sum, tag)
	if err == nil {
		how.progress(size)
		return nil // stored by an earlier attempt
	}
	if wrong := (*MismatchError)(nil); !errors.Is(err, fs.ErrNotExist) && !errors.As(err, &wrong) {
		return err
	}
	opts := minio.PutObjectOptions{UserMetadata: map[string]string{sumKey: sum}, ContentType: "application/octet-stream"}
	if multipart {
		err = r.putParts(ctx, key, src, list, opts, how)
	} else {
		p := list[0]
		_, err = r.core.PutObject(ctx, r.bucket, r.key(key), io.NewSectionReader(src, 0, size), size,
			base64.StdEncoding.EncodeToString(p.md5), hex.EncodeToString(p.sha256), opts)
	}
	if err != nil {
		return r.explain("store", key, err)
	}
	how.progress(size)
	return r.verify(ctx, key, size, sum, tag)
}

// putParts sends a large object part by part, continuing an earlier session where
// the remote still has its parts.
func (r *s3Remote) putParts(ctx context.Context, key string, src io.ReaderAt, list []piece, opts minio.PutObjectOptions, how PutOptions) error {
	full := r.key(key)
	id := how.Sessions.Session(key)
	var have map[int]minio.ObjectPart
	if id != "" {
		var err error
		have, err = r.parts(ctx, full, id)
		switch {
		case minio.ToErrorResponse(err).Code == minio.NoSuchUpload:
			id = ""
		case err != nil:
			return err
		}
	}
	if id == "" {
		var err error
		if id, err = r.core.NewMultipartUpload(ctx, r.bucket, full, opts); err != nil {
			return err
		}
		if err := how.Sessions.SetSession(key, id); err != nil {
			return err
		}
	}
	done := make([]minio.CompletePart, len(list))
	sent := int64(0)
	for i, p := range list {
		got, ok := have[p.number]
		if !ok || got.Size != p.size || strings.Trim(got.ETag, `"`) != hex.EncodeToString(p.md5) {
			var err error
			got, err = r.core.PutObjectPart(ctx, r.bucket, full, id, p.number, io.NewSectionReader(src, p.offset, p.size), p.size,
				minio.PutObjectPartOptions{Md5Base64: base64.StdEncoding.EncodeToString(p.md5), Sha256Hex: hex.EncodeToString(p.sha256)})
			if err != nil {
				return err
			}
		}
		done[i] = minio.CompletePart{PartNumber: p.number, ETag: got.ETag}
		sent += p.size
		how.progress(sent)
	}
	if _, err := r.core.CompleteMultipartUpload(ctx, r.bucket, full, id, done, opts); err != nil {
		if minio.ToErrorResponse(err).StatusCode == http.StatusBadRequest {
			// The remote rejects its own parts: the next attempt starts over.
			err = errors.Join(err, how.Sessions.SetSession(key, ""), r.core.AbortMultipartUpload(ctx, r.bucket, full, id))
		}
		return err
	}
	return how.Sessions.SetSession(key, "")
}

// parts lists the parts that have arrived.
func (r *s3Remote) parts(ctx context.Context, full, id string) (map[int]minio.ObjectPart, error) {
	have := map[int]minio.ObjectPart{}
	for marker := 0; ; {
		page, err := r.core.ListObjectParts(ctx, r.bucket, full, id, marker, 1000)
		if err != nil {
			return nil, err
		}
		for _, p := range page.ObjectParts {
			have[p.PartNumber] = p
		}
		if !page.IsTruncated || page.NextPartNumberMarker <= marker {
			return have, nil
		}
		marker = page.NextPartNumberMarker
	}
}

// verify compares what is stored with what should be: size, recorded SHA-256, and the
// server's checksum; if that is of another kind (some encrypted buckets), the object is
// read back and hashed.
func (r *s3Remote) verify(ctx context.Context, key string, size int64, sum, tag string) error {
	info, err := r.core.StatObject(ctx, r.bucket, r.key(key), minio.StatObjectOptions{})
	if err != nil {
		return r.explain("look at", key, err)
	}
	noted := info.UserMetadata[sumKey]
	if info.Size != size || noted != sum {
		return &MismatchError{key, size, sum, info.Size, noted}
	}
	if strings.Trim(info.ETag, `"`) == tag {
		return nil
	}
	body, err := r.Get(ctx, key, 0)
	if err != nil {
		return err
	}
	n, got, err := hashReader(ctx, body)
	if err = errors.Join(err, body.Close()); err != nil {
		return r.explain("read back", key, err)
	}
	if n != size || got != sum {
		return &MismatchError{key, size, sum, n, got}
	}
	return nil
}

func (r *s3Remote) Get(ctx context.Context, key string, offset int64) (io.ReadCloser, error) {
	var opts minio.GetObjectOptions
	if offset > 0 {
		if err := opts.SetRange(offset, 0); err != nil {
			return nil, err
		}
	}
	body, _, _, err := r.core.GetObject(ctx, r.bucket, r.key(key), opts)
	if err != nil {
		return nil, r.explain("read", key, err)
	}
	return body, nil
}

func (r *s3Remote) Stat(ctx context.Context, key string) (Object, error) {
	info, err := r.core.StatObject(ctx, r.bucket, r.key(key), minio.StatObjectOptions{})
	if err != nil {
		return Object{}, r.explain("look at", key, err)
	}
	return Object{key, info.Size, info.UserMetadata[sumKey]}, nil
}

func (r *s3Remote) List(ctx context.Context, prefix string) ([]Object, error) {
	base := ""
	if r.prefix != "" {
		base = r.prefix + "/"
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the lister on an early return
	var list []Object
	for info := range r.core.Client.ListObjects(ctx, r.bucket, minio.ListObjectsOptions{Prefix: base + prefix, Recursive: true}) {
		if info.Err != nil {
			return nil, r.explain("list", prefix, info.Err)
		}
		list = append(list, Object{Key: strings.TrimPrefix(info.Key, base), Size: info.Size})
	}
	return list, ctx.Err()
}

func (r *s3Remote) Remove(ctx context.Context, key string) error {
	err := r.core.RemoveObject(ctx, r.bucket, r.key(key), minio.RemoveObjectOptions{})
	if err = r.explain("delete", key, err); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// hints say what to check for errors that a retry cannot fix.
var hints = map[string]string{
	minio.AccessDenied:             "check the access key, its secret and that they may read and write the bucket",
	"InvalidAccessKeyId":           "the access key is unknown there; check it and the endpoint",
	"XAdminUserNotFound":           "the access key is unknown there; check it and the endpoint", // versitygw
	"SignatureDoesNotMatch":        "the secret key is wrong, or does not belong to the access key",
	"AuthorizationHeaderMalformed": "check the region",
	"InvalidToken":                 "the session token is wrong",
	"ExpiredToken":                 "the session token has expired",
	minio.NoSuchBucket:             "create the bucket first, or check its name and the endpoint",
	"InvalidBucketName":            "check the bucket's name",
	"PermanentRedirect":            "the bucket is in another region; set it",
	"RequestTimeTooSkewed":         "set this machine's clock",
}

// explain names the object and classifies errors as missing, permanent or other.
func (r *s3Remote) explain(what, key string, err error) error {
	if err == nil {
		return nil
	}
	where := fmt.Errorf("%s %s/%s: %w", what, r, key, err)
	answer := minio.ToErrorResponse(err)
	if answer.Code == minio.NoSuchKey {
		return fmt.Errorf("%s %s/%s: %w", what, r, key, fs.ErrNotExist)
	}
	if hint, ok := hints[answer.Code]; ok {
		return &PermanentError{where, hint}
	}
	if answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden {
		return &PermanentError{where, hints[minio.AccessDenied]}
	}
	return where
}
