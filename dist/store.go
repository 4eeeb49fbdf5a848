package dist

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
)

// store is a client of torch's TCPStore, in version 2 of its format (the file
// TCPStoreBackend.hpp of PyTorch): little-endian, strings preceded by their length in 64
// bits. It has no passwords: it is for private networks.
type store struct{ net.Conn }

// The queries.
const (
	storeValidate = 0
	storeSet      = 1
	storeGet      = 3
	storeWait     = 6

	storeMagic = 0x3C85F7CE
	maxStored  = 1 << 20
)

func dialStore(ctx context.Context, address string) (*store, error) {
	c, err := reach(ctx, address)
	if err != nil {
		return nil, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		if err := c.SetDeadline(deadline); err != nil {
			return nil, err
		}
	}
	s := &store{c}
	return s, s.write(binary.LittleEndian.AppendUint32([]byte{storeValidate}, storeMagic))
}

func (s *store) write(b []byte) error {
	_, err := s.Write(b)
	return err
}

func appendText(b []byte, text string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(text))), text...)
}

// storeKey returns a key as torch's clients write it.
func storeKey(key string) string { return "/" + key }

func (s *store) set(key string, value []byte) error {
	return s.write(appendText(appendText([]byte{storeSet}, storeKey(key)), string(value)))
}

// get waits until a key is set and returns its value.
func (s *store) get(key string) ([]byte, error) {
	b := binary.LittleEndian.AppendUint64([]byte{storeWait}, 1)
	if err := s.write(appendText(b, storeKey(key))); err != nil {
		return nil, err
	}
	var n [8]byte
	if _, err := io.ReadFull(s, n[:1]); err != nil {
		return nil, err
	}
	if n[0] != 0 {
		return nil, fmt.Errorf("it answers %d to a wait, want 0", n[0])
	}
	if err := s.write(appendText([]byte{storeGet}, storeKey(key))); err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(s, n[:]); err != nil {
		return nil, err
	}
	size := binary.LittleEndian.Uint64(n[:])
	if size > maxStored {
		return nil, fmt.Errorf("key %s has %d bytes, more than the %d allowed", key, size, maxStored)
	}
	value := make([]byte, size)
	_, err := io.ReadFull(s, value)
	return value, err
}

// listen opens a port on the address from which this machine reaches the store.
func (s *store) listen(ctx context.Context) (net.Listener, error) {
	host, _, err := net.SplitHostPort(s.LocalAddr().String())
	if err != nil {
		return nil, err
	}
	return new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
}
