package cpu

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// pool runs parallel regions on a fixed set of workers. Within a session
// (between start and stop) idle workers spin, because a region is often
// shorter than the 100 microseconds that waking a parked goroutine costs;
// between sessions they are parked.
//
// Tasks are claimed one by one, and a region ends when its tasks are done, whether or not
// every worker took part: a worker that the system does not schedule delays nothing, and
// one that it interrupts delays only its current task. Which worker runs a task never
// affects the result.
type pool struct {
	workers int
	// The region, valid as long as one of its tasks is claimed and not done.
	run   func(task, worker int)
	tasks int
	wake  []chan struct{}
	quit  sync.WaitGroup

	_    [64]byte
	next atomic.Uint64 // number of the region << 32 | unclaimed tasks
	_    [56]byte
	left atomic.Int64 // unfinished tasks of the region
	_    [56]byte
	live atomic.Bool // a session is open
}

// newPool starts workers-1 goroutines; the caller of region is worker 0.
func newPool(workers int) *pool {
	p := &pool{workers: workers}
	for w := 1; w < workers; w++ {
		c := make(chan struct{}, 1)
		p.wake = append(p.wake, c)
		p.quit.Add(1)
		go p.loop(w, c)
	}
	return p
}

// close ends the workers.
func (p *pool) close() {
	for _, c := range p.wake {
		close(c)
	}
	p.quit.Wait()
}

func (p *pool) loop(w int, wake chan struct{}) {
	defer p.quit.Done()
	runtime.LockOSThread()
	for range wake {
		for i := 0; p.live.Load(); i++ {
			if p.work(w) {
				i = 0
			}
			spin(i)
		}
	}
}

// patience is how many pauses (some tens of microseconds) a waiting worker makes before
// it starts yielding its core to other processes.
const patience = 500

func spin(i int) {
	pause()
	if i > patience {
		yield()
	}
}

// work runs tasks until none is left to claim, and reports whether it ran any.
func (p *pool) work(w int) (any bool) {
	for {
		v := p.next.Load()
		n := uint32(v)
		if n == 0 {
			return any
		}
		if p.next.CompareAndSwap(v, v-1) {
			p.run(p.tasks-int(n), w)
			p.left.Add(-1)
			any = true
		}
	}
}

// start opens a session.
func (p *pool) start() {
	p.live.Store(true)
	for _, c := range p.wake {
		select {
		case c <- struct{}{}:
		default: // not parked yet since the previous session
		}
	}
}

// stop ends the session; workers park when they next look.
func (p *pool) stop() { p.live.Store(false) }

// region runs tasks 0..tasks-1 and returns when all are done.
func (p *pool) region(tasks int, run func(task, worker int)) {
	if tasks == 1 || p.workers == 1 {
		for t := range tasks {
			run(t, 0)
		}
		return
	}
	p.run, p.tasks = run, tasks
	p.left.Store(int64(tasks))
	p.next.Store((p.next.Load()>>32+1)<<32 | uint64(tasks))
	p.work(0)
	for i := 0; p.left.Load() != 0; i++ {
		spin(i)
	}
}
