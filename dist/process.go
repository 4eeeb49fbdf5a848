package dist

// process identifies a process on its machine.
type process struct {
	// Machine identifies the machine, and the container on it: each numbers its processes
	// separately.
	Machine string `json:"machine,omitempty"`
	ID      int    `json:"id,omitempty"`
	Start   uint64 `json:"start,omitempty"` // in ticks of the clock since the machine started
}
