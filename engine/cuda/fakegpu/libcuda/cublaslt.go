//go:build linux

package libcuda

import (
	"encoding/binary"
	"errors"

	"github.com/snug-ml/snug/engine/cuda/cublaslt"
	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/cuda/fakegpu"
)

// matmul is the struct of libcublasLt.c with the arguments of cublasLtMatmul.
type matmul struct {
	Alpha, Beta               float32
	At, Layout                [4]uint64
	Workspace, WorkspaceBytes uint64
	Algorithm                 cublaslt.Algorithm
}

// made is what a function of cuBLASLt returns: a number or a handle, bytes, and its status.
type made struct {
	value  uint64
	text   []byte
	status cublaslt.Status
}

func one(handle uintptr, s cublaslt.Status) made { return made{value: uint64(handle), status: s} }

func init() {
	for name, f := range map[string]func(*program, *fakegpu.CublasLt, *question) made{
		"cublasLtGetVersion": func(_ *program, l *fakegpu.CublasLt, _ *question) made { return made{value: uint64(l.Version())} },
		"cublasLtCreate":     func(_ *program, l *fakegpu.CublasLt, _ *question) made { return one(l.Create()) },
		"cublasLtDestroy":    destroying((*fakegpu.CublasLt).Destroy),

		"cublasLtMatmulDescCreate": func(_ *program, l *fakegpu.CublasLt, q *question) made {
			return one(l.DescCreate(cublaslt.ComputeType(q.Arg[0]), cublaslt.DataType(q.Arg[1])))
		},
		"cublasLtMatmulDescSetAttribute": setting((*fakegpu.CublasLt).DescSet),
		"cublasLtMatmulDescDestroy":      destroying((*fakegpu.CublasLt).DescDestroy),

		"cublasLtMatrixLayoutCreate": func(_ *program, l *fakegpu.CublasLt, q *question) made {
			return one(l.LayoutCreate(cublaslt.DataType(q.Arg[0]), q.Arg[1], q.Arg[2], int64(q.Arg[3])))
		},
		"cublasLtMatrixLayoutSetAttribute": setting((*fakegpu.CublasLt).LayoutSet),
		"cublasLtMatrixLayoutDestroy":      destroying((*fakegpu.CublasLt).LayoutDestroy),

		"cublasLtMatmulPreferenceCreate":       func(_ *program, l *fakegpu.CublasLt, _ *question) made { return one(l.PreferenceCreate()) },
		"cublasLtMatmulPreferenceSetAttribute": setting((*fakegpu.CublasLt).PreferenceSet),
		"cublasLtMatmulPreferenceDestroy":      destroying((*fakegpu.CublasLt).PreferenceDestroy),

		"cublasLtMatmulAlgoGetHeuristic": func(_ *program, l *fakegpu.CublasLt, q *question) made {
			results := make([]cublaslt.Result, q.Arg[7])
			n, s := l.Heuristic(uintptr(q.Arg[0]), uintptr(q.Arg[1]), layouts(q.Arg[2:6]), uintptr(q.Arg[6]), results)
			return made{uint64(n), bytesOf(results[:n]), s}
		},
		"cublasLtMatmulAlgoCheck": func(_ *program, l *fakegpu.CublasLt, q *question) made {
			a := cublaslt.Algorithm(q.text)
			r, s := l.Check(uintptr(q.Arg[0]), uintptr(q.Arg[1]), layouts(q.Arg[2:6]), &a)
			return made{0, bytesOf(r), s}
		},
		"cublasLtMatmulAlgoConfigGetAttribute": func(_ *program, l *fakegpu.CublasLt, q *question) made {
			a, value := cublaslt.Algorithm(q.text), make([]byte, q.Arg[1])
			s := l.AlgoGet(&a, cublaslt.AlgoAttribute(q.Arg[0]), value)
			return made{0, value, s}
		},
		"cublasLtMatmul": (*program).matmul,
	} {
		calls[name] = ofLibrary(f)
	}
}

// ofLibrary calls f with the simulated library, and with the program's context, if it has one, current.
func ofLibrary(f func(*program, *fakegpu.CublasLt, *question) made) func(*program, *question) (reply, error) {
	return func(p *program, q *question) (r reply, err error) {
		l := p.driver.CublasLt
		if l == nil {
			return r, errors.New("the simulated card has no cuBLASLt")
		}
		run := func() error {
			m := f(p, l, q)
			r = reply{value: [2]uint64{m.value, uint64(m.status)}, text: m.text}
			return nil
		}
		if c, err := find[*primary](p, q.Context); err == nil {
			return r, c.Do(run)
		}
		return r, run()
	}
}

func destroying(f func(*fakegpu.CublasLt, uintptr) cublaslt.Status) func(*program, *fakegpu.CublasLt, *question) made {
	return func(_ *program, l *fakegpu.CublasLt, q *question) made { return made{status: f(l, uintptr(q.Arg[0]))} }
}

func setting[A ~int32](f func(*fakegpu.CublasLt, uintptr, A, []byte) cublaslt.Status) func(*program, *fakegpu.CublasLt, *question) made {
	return func(_ *program, l *fakegpu.CublasLt, q *question) made {
		return made{status: f(l, uintptr(q.Arg[0]), A(q.Arg[1]), q.text)}
	}
}

func layouts(list []uint64) cublaslt.Layouts {
	return cublaslt.Layouts{A: uintptr(list[0]), B: uintptr(list[1]), C: uintptr(list[2]), D: uintptr(list[3])}
}

// bytesOf is a value as C has it in memory.
func bytesOf(v any) []byte {
	b, err := binary.Append(nil, binary.NativeEndian, v)
	if err != nil {
		panic(err) // the sizes are fixed
	}
	return b
}

// matmul queues a product in a stream, whose handle is the program's own.
func (p *program) matmul(l *fakegpu.CublasLt, q *question) made {
	var m matmul
	s, err := find[driver.Stream](p, q.Arg[2])
	if _, e := binary.Decode(q.text, binary.NativeEndian, &m); err != nil || e != nil {
		return made{status: cublaslt.InvalidValue}
	}
	return made{status: l.Matmul(uintptr(q.Arg[0]), uintptr(q.Arg[1]), layouts(m.Layout[:]), &cublaslt.Matmul{
		Alpha: m.Alpha, Beta: m.Beta, A: m.At[0], B: m.At[1], C: m.At[2], D: m.At[3], Algorithm: &m.Algorithm,
		Workspace: m.Workspace, WorkspaceBytes: int64(m.WorkspaceBytes), Stream: s.Handle(),
	})}
}
