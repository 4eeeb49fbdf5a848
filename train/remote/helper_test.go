package remote

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/snug-ml/snug/data/safetensors"
	"github.com/snug-ml/snug/train/checkpoint"
	"github.com/snug-ml/snug/train/rundir"
)

// gaussian is a tensor with the statistics of trained weights.
func gaussian(name string, d safetensors.DType, n int, seed uint64) checkpoint.Tensor {
	r := rand.New(rand.NewPCG(seed, 1))
	width := d.Bits() / 8
	data := make([]byte, n*width)
	for i := range n {
		bits := math.Float32bits(float32(r.NormFloat64() * 0.02))
		if d == safetensors.BF16 {
			binary.LittleEndian.PutUint16(data[2*i:], uint16(bits>>16))
		} else {
			binary.LittleEndian.PutUint32(data[4*i:], bits)
		}
	}
	return checkpoint.Tensor{Name: name, DType: d, Shape: []int{n}, Data: data}
}

// newRun makes a run folder with checkpoints whose weights have about the given
// number of bytes; the updates' contents differ.
func newRun(t testing.TB, bytes int, updates ...int64) string {
	t.Helper()
	return newRunOf(t, rundir.NewID(), bytes, updates...)
}

// newRunOf is newRun of a run that may be in several folders.
func newRunOf(t testing.TB, id string, bytes int, updates ...int64) string {
	t.Helper()
	run := t.TempDir()
	s, err := checkpoint.Open(run, checkpoint.Options{KeepLast: 100})
	if err == nil {
		err = s.Run().Begin(id)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range updates {
		err := s.Save(context.Background(), &checkpoint.Snapshot{
			Weights:   []checkpoint.Tensor{gaussian("w", safetensors.BF16, bytes/2, uint64(u))},
			Optimizer: []checkpoint.Tensor{gaussian("m/w", safetensors.F32, 1000, uint64(u))},
			State:     checkpoint.State{Update: u},
			Files:     map[string][]byte{checkpoint.ConfigFile: []byte("model: {}\n"), "tokenizer.json": []byte("{}")},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return run
}

func dirOf(run string, update int64) string {
	return filepath.Join(run, checkpoint.Folder, checkpoint.Name(update))
}

// same fails unless two checkpoints are equal in every byte of every file.
func same(t testing.TB, a, b string) {
	t.Helper()
	m, err := checkpoint.ReadManifest(a)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range append(m.Files, checkpoint.FileSum{Name: checkpoint.ManifestFile}) {
		x, err := os.ReadFile(filepath.Join(a, f.Name))
		y, err2 := os.ReadFile(filepath.Join(b, f.Name))
		if err != nil || err2 != nil || string(x) != string(y) {
			t.Fatalf("%s differs: %v %v", f.Name, err, err2)
		}
	}
	list, err := os.ReadDir(b)
	if err != nil || len(list) != len(m.Files)+1 {
		t.Fatalf("%s holds %v %v", b, list, err)
	}
}

// fast are options that do not really wait.
func fast() PushOptions {
	return PushOptions{Attempts: 4, sleep: func(time.Duration) <-chan time.Time { return time.After(time.Millisecond) }}
}

func openURL(t testing.TB, url string, c Config) Remote {
	t.Helper()
	r, err := Open(url, c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// server is a versitygw, a real S3 server, on a folder of its own.
type server struct {
	t    testing.TB
	dir  string
	port int
	cmd  *exec.Cmd
}

// newServer starts one, or skips the test and says why.
func newServer(t testing.TB) *server {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: no S3 server is started")
	}
	l, err := newListener()
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, dir: t.TempDir(), port: l.Addr().(*net.TCPAddr).Port}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"data/bucket", "meta"} {
		if err := os.MkdirAll(filepath.Join(s.dir, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s.start()
	t.Cleanup(s.stop)
	return s
}

func newListener() (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") }

func (s *server) start() {
	s.t.Helper()
	program, err := exec.LookPath("versitygw")
	if err != nil {
		gopath, gerr := exec.Command("go", "env", "GOPATH").Output()
		if gerr != nil {
			s.t.Skip("no versitygw on PATH, and no go to ask for GOPATH")
		}
		program = filepath.Join(filepath.SplitList(string(gopath[:len(gopath)-1]))[0], "bin", "versitygw")
		if _, err := os.Stat(program); err != nil {
			s.t.Skip("no versitygw; to run this: go install github.com/versity/versitygw/cmd/versitygw@v1.8.0")
		}
	}
	s.cmd = exec.Command(program, "--access", "K", "--secret", "S", "--port", fmt.Sprintf("127.0.0.1:%d", s.port),
		"posix", "--sidecar", filepath.Join(s.dir, "meta"), filepath.Join(s.dir, "data"))
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	for range 200 {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", s.port))
		if err == nil {
			_ = c.Close()
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	s.t.Fatal("versitygw does not listen")
}

func (s *server) stop() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill() // it may have ended
		_ = s.cmd.Wait()
		s.cmd = nil
	}
}

func (s *server) url(prefix string) string {
	return fmt.Sprintf("s3://bucket/%s?endpoint=http://127.0.0.1:%d&region=us-east-1", prefix, s.port)
}

func (s *server) remote(prefix string) Remote {
	return openURL(s.t, s.url(prefix), Config{AccessKey: "K", SecretKey: "S", PartSize: minPart})
}

// flaky is a Remote whose calls and streams can be made to fail.
type flaky struct {
	Remote
	mu   sync.Mutex
	fail func(call, key string) error
	cut  int64 // bytes after which a Get breaks; 0: never
	got  int64 // bytes that all Gets gave
}

var errNet = errors.New("the network is down")

func (f *flaky) check(call, key string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail == nil {
		return nil
	}
	return f.fail(call, key)
}

func (f *flaky) set(fail func(call, key string) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = fail
}

func (f *flaky) Put(ctx context.Context, key string, src io.ReaderAt, size int64, sum string, how PutOptions) error {
	if err := f.check("put", key); err != nil {
		return err
	}
	return f.Remote.Put(ctx, key, src, size, sum, how)
}

func (f *flaky) Stat(ctx context.Context, key string) (Object, error) {
	if err := f.check("stat", key); err != nil {
		return Object{}, err
	}
	return f.Remote.Stat(ctx, key)
}

func (f *flaky) List(ctx context.Context, prefix string) ([]Object, error) {
	if err := f.check("list", prefix); err != nil {
		return nil, err
	}
	return f.Remote.List(ctx, prefix)
}

func (f *flaky) Get(ctx context.Context, key string, offset int64) (io.ReadCloser, error) {
	if err := f.check("get", key); err != nil {
		return nil, err
	}
	body, err := f.Remote.Get(ctx, key, offset)
	if err != nil {
		return nil, err
	}
	return &cutBody{body, f, f.cut}, nil
}

type cutBody struct {
	io.ReadCloser
	f    *flaky
	left int64
}

func (c *cutBody) Read(p []byte) (int, error) {
	if c.f.cut > 0 {
		if c.left == 0 {
			return 0, errNet
		}
		p = p[:min(int64(len(p)), c.left)]
	}
	n, err := c.ReadCloser.Read(p)
	c.left -= int64(n)
	c.f.mu.Lock()
	c.f.got += int64(n)
	c.f.mu.Unlock()
	return n, err
}
