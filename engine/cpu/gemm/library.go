package gemm

import "unsafe"

// Size of the blocks of C that a library computes: large enough for its kernels, and
// depending only on C, as the bits of a library may depend on the block.
const libraryRows, libraryCols = 256, 512

// Served reports whether a library can multiply such operands: it multiplies float32 and
// does not show what it reads, so there is no [Args.SeeA] either.
func Served(a, b, c DType, opts Options) bool {
	return a == F32 && b == F32 && c == F32 && opts.Compute == F32 && opts.MapA == nil && opts.MapB == nil && opts.ReadB == nil
}

// libraryTasks returns the number of blocks of C.
func (p *Plan) libraryTasks() int { return ceil(p.rows, libraryRows) * ceil(p.cols, libraryCols) }

// runLibrary computes one block of C and finishes it: the bias and the epilogue are loops
// over the block after the matmul.
func (p *Plan) runLibrary(task int, args *Args, worker []byte) {
	if args.SeeA != nil {
		panic("gemm: a library does not show what it reads")
	}
	down, across := ceil(p.rows, libraryRows), ceil(p.cols, libraryCols)
	i, j := task%down, task/down
	i0, i1 := p.rows*i/down, p.rows*(i+1)/down
	j0, j1 := p.cols*j/across, p.cols*(j+1)/across
	a, b, c := args.A, args.B, args.C
	a.Data, b.Data, c.Data = a.at(i0, 0), b.at(0, j0), c.at(i0, j0)
	if a.Trans {
		a.Data = args.A.at(0, i0)
	}
	if b.Trans {
		b.Data = args.B.at(j0, 0)
	}
	p.lib.Sgemm(i1-i0, j1-j0, p.k, a, b, c, p.accumulate, worker)
	if args.Bias != nil {
		bias := unsafe.Slice((*float32)(unsafe.Add(args.Bias, 4*j0)), j1-j0)
		for i := range i1 - i0 {
			row := unsafe.Slice((*float32)(c.at(i, 0)), len(bias))
			for j, v := range bias {
				row[j] += v
			}
		}
	}
	if args.Epilogue != nil {
		args.Epilogue.Tile(i0, i1, j0, j1, (*float32)(c.Data), c.Stride)
	}
}
