package dist_test

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// tcpStore starts PyTorch's store, or one that speaks its format if there is no PyTorch,
// and returns its port.
func tcpStore(t *testing.T) int {
	t.Helper()
	python := os.Getenv("SNUG_PYTHON")
	if python == "" {
		return ownStore(t)
	}
	c := exec.Command(python, "-c", `
import datetime, sys, torch.distributed as d
s = d.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=datetime.timedelta(seconds=60))
print(s.port, flush=True)
sys.stdin.read()`)
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = c.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// ownStore answers the queries that a group makes.
func ownStore(t *testing.T) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	var mu sync.Mutex
	changed := sync.NewCond(&mu)
	values := map[string]string{}
	serve := func(c net.Conn) {
		defer func() { _ = c.Close() }()
		number := func() uint64 {
			var b [8]byte
			_, _ = io.ReadFull(c, b[:])
			return binary.LittleEndian.Uint64(b[:])
		}
		text := func() string {
			b := make([]byte, number())
			_, _ = io.ReadFull(c, b)
			return string(b)
		}
		for q := make([]byte, 1); ; {
			if _, err := io.ReadFull(c, q); err != nil {
				return
			}
			mu.Lock()
			switch q[0] {
			case 0:
				var magic [4]byte
				_, _ = io.ReadFull(c, magic[:])
				if binary.LittleEndian.Uint32(magic[:]) != 0x3C85F7CE {
					t.Errorf("magic word % x", magic)
				}
			case 1:
				key := text()
				values[key] = text()
				changed.Broadcast()
			case 3:
				v := values[text()]
				_, _ = c.Write(append(binary.LittleEndian.AppendUint64(nil, uint64(len(v))), v...))
			case 6:
				for range number() {
					for key := text(); values[key] == ""; {
						changed.Wait()
					}
				}
				_, _ = c.Write([]byte{0})
			default:
				t.Errorf("query %d", q[0])
			}
			mu.Unlock()
		}
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(c)
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}
