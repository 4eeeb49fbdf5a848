package dist

// process is a process as its machine knows it.
type process struct {
	// Machine tells the machine from others, and the containers on it: they count processes
	// apart.
	Machine string `json:"machine,omitempty"`
	ID      int    `json:"id,omitempty"`
	Start   uint64 `json:"start,omitempty"` // in ticks of the clock since the machine started
}
