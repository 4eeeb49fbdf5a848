// Package ptxsim interprets PTX: it stands in for a GPU in the tests of the CUDA backend.
//
//	m, err := ptxsim.Parse(text)
//	mem := ptxsim.NewMemory(1 << 30)
//	x, err := mem.Alloc(4096)
//	err = ptxsim.Launch(mem, m.Kernel("scale"), ptxsim.Grid{Grid: [3]uint32{8}, Block: [3]uint32{128}}, params, ptxsim.Options{Checks: ptxsim.CheckAll})
//
// The text runs exactly as written: an instruction or modifier that is not modeled is an error of [Parse],
// which quotes the line. An error at run time is a [Fault], with the kernel, block, thread, line of the PTX and
// of the source, and the reason. The line of the source is that of the .loc directives in the text or what
// [Module].Source says, which for snug's kernels is engine/cuda/kernels/lines, and for generated ones their listing
// (engine/cuda/listing.go).
//
// # What is modeled
//
// Integers of 8 to 64 bits, f16, bf16, tf32, f32 and f64, alone and in pairs, with
// PTX's rounding modes, flushing and rules for NaN; predicates and divergent branches;
// calls of functions, which are inlined; all state spaces and generic addresses; vector
// accesses; atomics; barriers of blocks and warps; shuffles, votes, matches and
// reductions of a warp; mma, ldmatrix and cp.async. Copies by cp.async land as late as
// allowed, so that a missing wait shows.
//
// Diverged lanes of a warp continue in the order of their instructions, the lowest first.
// Instructions with a mask of lanes wait for them. Warps of a block run in turn from barrier to barrier,
// and blocks in any order, except that they run in order if the kernel has atomics on global memory. So
// results depend on neither chance nor the number of workers.
//
// # Checks
//
// Addresses that are out of bounds or misaligned, writes to constants, barriers and collective
// instructions with missing lanes, and endless loops are errors in every launch. [Options] switch on the
// rest: reads of data that was never written, and data races, in shared and in global memory: between warps
// without a barrier, between lanes of a warp without bar.warp, and between blocks. A block's accesses are
// ordered after another's if an atomic of the former comes after a fenced atomic of the latter at the same
// address. What a launch writes it must not read by ld.global.nc, in any order.
//
// The checks do not see everything. Lanes that reach mma, ldmatrix, bar.sync and the like one after another
// wait for each other, while PTX leaves undefined what they do. Lanes that store to the same place by one
// instruction may, whatever they store. A bar.warp of some lanes counts as one of all. The source of a cp.async
// counts as read when the copy is issued, not when it lands. Of the readers of a place the last two warps of
// a block, and the last two blocks, are remembered, so that barriers of a part of a block, and atomics, may hide
// a race with an earlier reader.
//
// The tests also assemble what they parse with ptxas, if SNUG_PTXAS lists programs or PATH has one.
//
// # What is not modeled
//
// There are as many registers as the text declares: only ptxas knows spills and occupancy. There are no
// caches, and an access is complete when the next instruction begins: the checks for races find memory
// reorderings that a card might show, while running does not. Approximations (ex2, tanh, rcp and the like)
// are computed in float64 and rounded: a card's last bits differ. Sums of mma are rounded to float32 product
// by product in the order of k, where cards keep a few more bits within an instruction and cut some off.
// Results that PTX leaves undefined have a fixed value here.
// Textures, wgmma, TMA and mbarrier, indirect calls and recursion are not modeled.
package ptxsim
