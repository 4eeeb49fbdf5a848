package ptxsim

// carryFlag is the name under which a kernel's carry flag is kept; no text can have it.
const carryFlag = "carry flag"

// specialRegisters are the special registers and their types. Clocks are read only by mov.
var specialRegisters = map[string]typ{
	"%tid.x": tU32, "%tid.y": tU32, "%tid.z": tU32, "%ntid.x": tU32, "%ntid.y": tU32, "%ntid.z": tU32,
	"%ctaid.x": tU32, "%ctaid.y": tU32, "%ctaid.z": tU32, "%nctaid.x": tU32, "%nctaid.y": tU32, "%nctaid.z": tU32,
	"%laneid": tU32, "%warpid": tU32, "%nwarpid": tU32, "%smid": tU32, "%nsmid": tU32, "%gridid": tU64,
	"%lanemask_eq": tU32, "%lanemask_le": tU32, "%lanemask_lt": tU32, "%lanemask_ge": tU32, "%lanemask_gt": tU32,
	"%dynamic_smem_size": tU32, "%total_smem_size": tU32,
}

// special is the value of a special register in one lane. All blocks run on processor 0 of one.
func (w *warp) special(name string, l int) uint64 {
	x := w.b.x
	axis := int(name[len(name)-1] - 'x')
	bit := uint32(1) << l
	switch name {
	case "%tid.x", "%tid.y", "%tid.z":
		return uint64(w.thread(uint32(w.id*32 + l))[axis])
	case "%ntid.x", "%ntid.y", "%ntid.z":
		return uint64(x.grid.Block[axis])
	case "%ctaid.x", "%ctaid.y", "%ctaid.z":
		return uint64(w.b.ctaid[axis])
	case "%nctaid.x", "%nctaid.y", "%nctaid.z":
		return uint64(x.grid.Grid[axis])
	case "%laneid":
		return uint64(l)
	case "%warpid":
		return uint64(w.id)
	case "%nwarpid":
		return uint64(x.warps)
	case "%nsmid":
		return 1
	case "%gridid":
		return uint64(x.serial)
	case "%lanemask_eq":
		return uint64(bit)
	case "%lanemask_le":
		return uint64(bit<<1 - 1)
	case "%lanemask_lt":
		return uint64(bit - 1)
	case "%lanemask_ge":
		return uint64(^(bit - 1))
	case "%lanemask_gt":
		return uint64(^(bit<<1 - 1))
	case "%dynamic_smem_size":
		return uint64(x.grid.Shared)
	case "%total_smem_size":
		return uint64(x.shared)
	}
	return 0
}
