package device

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"time"
)

// Sample is one look at this process and the machine. Figures that the system does not report
// are zero.
type Sample struct {
	At time.Time

	RSS     int64 // bytes of this process in memory
	PeakRSS int64 // its maximum so far

	// CPU use since the previous sample (the first: since NewSampler), or since the one
	// before that if the interval is shorter than a tenth of a second.
	ProcessCPU float64 // percent of one processor: 200 is two processors busy
	MachineCPU float64 // percent of all processors, every process counted

	MemoryTotal     int64 // bytes of the machine
	MemoryAvailable int64
	CgroupUsed      int64 // bytes charged to the tightest limited cgroup, droppable file pages included
	CgroupLimit     int64 // 0: no limit
	Load            float64
}

// Sampler takes samples. It keeps its files and its buffer open, so that a sample
// allocates nothing. It is not safe for concurrent use.
type Sampler struct {
	self, status, machine, meminfo, load, cgroup *os.File

	limit  int64
	buffer [4096]byte
	ask    func() usage // for systems that answer calls instead of having files in /proc; nil: it has the files

	last, before cpuTime // CPU use is measured from these
}

// usage is what a system reports about this process and the machine when asked.
type usage struct {
	rss, peak        int64 // bytes
	cpu              time.Duration
	total, available int64 // bytes
	load             float64
}

// cpuTime is the CPU time used up to a moment, in ticks.
type cpuTime struct {
	at       time.Time
	process  int64 // by this process
	busy     int64 // on the machine
	capacity int64 // of all processors, idle or not
}

// shortest is the shortest interval for which CPU use is reported: ten ticks. Over less
// than one tick it would be nothing, or everything, by chance.
const shortest = 100 * time.Millisecond

// ticksPerSecond is USER_HZ, the unit of CPU times in /proc: 100 on every Linux that Go supports.
const ticksPerSecond = 100

// NewSampler opens what this system offers; call Close when done.
func NewSampler() *Sampler {
	s := newSampler("/")
	s.ask = askSystem
	s.last = s.cpuTime()
	return s
}

func newSampler(root string) *Sampler {
	open := func(path string) *os.File {
		f, err := os.Open(path)
		if err != nil {
			return nil // not offered: its figures stay zero
		}
		return f
	}
	s := &Sampler{
		self:    open(filepath.Join(root, "proc/self/stat")),
		status:  open(filepath.Join(root, "proc/self/status")),
		machine: open(filepath.Join(root, "proc/stat")),
		meminfo: open(filepath.Join(root, "proc/meminfo")),
		load:    open(filepath.Join(root, "proc/loadavg")),
	}
	limits := findCgroup(root)
	s.limit, _, _ = limits.memory()
	for _, g := range limits.memoryFiles() {
		if n, ok := readInt(g.limit); ok && s.limit > 0 && n == s.limit {
			s.cgroup = open(g.usage)
			break
		}
	}
	s.last = s.cpuTime()
	return s
}

// Close closes the files.
func (s *Sampler) Close() error {
	var errs []error
	for _, f := range []*os.File{s.self, s.status, s.machine, s.meminfo, s.load, s.cgroup} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// Sample takes a sample.
func (s *Sampler) Sample() Sample {
	x := Sample{CgroupLimit: s.limit}

	text := s.read(s.status)
	x.RSS, x.PeakRSS = kilobytes(text, "VmRSS:"), kilobytes(text, "VmHWM:")
	text = s.read(s.meminfo)
	x.MemoryTotal, x.MemoryAvailable = kilobytes(text, "MemTotal:"), kilobytes(text, "MemAvailable:")
	if text = s.read(s.cgroup); len(text) > 0 {
		x.CgroupUsed, _ = number(text)
	}
	if text = s.read(s.load); len(text) > 0 {
		x.Load = decimal(text)
	}
	if s.ask != nil {
		u := s.ask()
		x.RSS, x.PeakRSS, x.MemoryTotal, x.MemoryAvailable, x.Load = u.rss, u.peak, u.total, u.available, u.load
	}

	now := s.cpuTime()
	x.At = now.at
	from := s.last
	switch {
	case now.at.Sub(s.last.at) >= shortest:
		s.before, s.last = s.last, now
	case !s.before.at.IsZero():
		from = s.before
	}
	if d := now.at.Sub(from.at).Seconds(); d > 0 {
		x.ProcessCPU = 100 * float64(now.process-from.process) / ticksPerSecond / d
	}
	if now.capacity > from.capacity {
		x.MachineCPU = 100 * float64(now.busy-from.busy) / float64(now.capacity-from.capacity)
	}
	return x
}

// cpuTime reads the CPU time used so far.
func (s *Sampler) cpuTime() cpuTime {
	t := cpuTime{at: time.Now(), process: s.processTicks()}
	t.busy, t.capacity = s.machineTicks()
	return t
}

// read fills the buffer from the start of a /proc file, which makes the kernel generate it
// again.
func (s *Sampler) read(f *os.File) []byte {
	if f == nil {
		return nil
	}
	n, _ := f.ReadAt(s.buffer[:], 0) // io.EOF is normal
	return s.buffer[:n]
}

// processTicks returns what the system reports when asked, or utime + stime, fields 14 and 15 of
// /proc/self/stat. Field 2, the name, is in parentheses and may contain anything, so fields are
// counted from the last parenthesis.
func (s *Sampler) processTicks() int64 {
	if s.ask != nil {
		return int64(s.ask().cpu / (time.Second / ticksPerSecond))
	}
	text := s.read(s.self)
	i := bytes.LastIndexByte(text, ')')
	if i < 0 {
		return 0
	}
	text = text[i+1:]
	for range 11 { // fields 3 to 13
		text = bytes.TrimLeft(text, " ")
		j := bytes.IndexByte(text, ' ')
		if j < 0 {
			return 0
		}
		text = text[j:]
	}
	user, text := number(text)
	system, _ := number(text)
	return user + system
}

// machineTicks adds up the first line of /proc/stat: user nice system idle iowait irq
// softirq steal (guest times are contained in user and nice). Idle and iowait are not
// busy.
func (s *Sampler) machineTicks() (busy, capacity int64) {
	text := s.read(s.machine)
	if !bytes.HasPrefix(text, []byte("cpu ")) {
		return 0, 0
	}
	text = text[len("cpu "):]
	for i := range 8 {
		var n int64
		n, text = number(text)
		capacity += n
		if i != 3 && i != 4 {
			busy += n
		}
	}
	return busy, capacity
}

// decimal reads a number such as 0.53.
func decimal(text []byte) float64 {
	whole, rest := number(text)
	x := float64(whole)
	if len(rest) > 0 && rest[0] == '.' {
		scale := 0.1
		for _, c := range rest[1:] {
			if c < '0' || c > '9' {
				break
			}
			x += float64(c-'0') * scale
			scale /= 10
		}
	}
	return x
}
