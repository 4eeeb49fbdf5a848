// Package ptxsim interprets PTX: it stands in for a GPU in the tests of the CUDA backend.
//
//	m, err := ptxsim.Parse(text)
//	mem := ptxsim.NewMemory(1 << 30)
//	x, err := mem.Alloc(4096)
//	err = ptxsim.Launch(mem, m.Kernel("scale"), ptxsim.Grid{Grid: [3]uint32{8}, Block: [3]uint32{128}}, params, ptxsim.Options{Checks: ptxsim.CheckAll})
//
// Exactly the text is run: an instruction or a modifier that is not modeled is an error of [Parse],
// which quotes the line. An error at run time is a [Fault]: kernel, block, thread, line of the PTX
// and of the source, and why.
//
// # What is modeled
//
// Integers of 8 to 64 bits, f16, bf16, tf32, f32 and f64, alone and in pairs, with
// PTX's rounding modes, flushing and rules for NaN; predicates and divergent branches;
// calls of functions, which are inlined; all state spaces and generic addresses; vector
// accesses; atomics; barriers of blocks and warps; shuffles, votes, matches and
// reductions of a warp; mma, ldmatrix and cp.async. Copies by cp.async land as late as
// is allowed, so that a missing wait shows.
//
// Diverged lanes of a warp continue in the order of their instructions, the lowest first.
// Instructions that name lanes wait for them. Warps of a block run in turn from barrier to barrier,
// blocks in any order; a kernel with atomics on global memory has its blocks run in order. So a
// result depends on neither chance nor the number of workers.
//
// # Checks
//
// Addresses out of bounds, misaligned ones, writes to constants, barriers and
// collective instructions that lanes are missing from, and loops without an end are
// errors in every launch. [Options] switch on the rest: reads of what was never
// written, data races in shared memory (between warps without a barrier, between lanes
// of a warp without bar.warp) and between blocks in global memory. A block's accesses
// are ordered after another's if an atomic of the former comes after a fenced atomic of
// the latter at the same address.
//
// The tests have ptxas assemble what they parse, where SNUG_PTXAS lists programs or PATH has one.
//
// # What is not
//
// Registers are as many as the text declares: spills and occupancy are known to ptxas alone. There
// are no caches, and an access is done when the next instruction begins: orders of memory that a
// card might show are found by the checks for races, not by running. Approximations (ex2, tanh, rcp
// and the like) are computed to float64's precision and rounded: a card's last bits differ. Sums of
// mma are rounded to float32 product by product in the order of k, where cards keep a few more bits
// within an instruction and cut some off. Results that PTX leaves undefined have one value here.
// Textures, wgmma, TMA and mbarrier, indirect calls and recursion are not modeled.
package ptxsim
