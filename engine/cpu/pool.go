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
// Tasks are claimed one by one, so a worker that the system delays costs only
// the task in its hands. Which worker runs a task never shows in the result.
type pool struct {
	workers int
	run     func(task, worker int)
	tasks   int64
	wake    []chan struct{}
	quit    sync.WaitGroup

	_     [64]byte
	epoch atomic.Uint32 // counts regions; the low bit of mode ends a session
	_     [60]byte
	next  atomic.Int64
	_     [56]byte
	left  atomic.Int32 // workers that have not finished the region
	_     [60]byte
	live  atomic.Bool // a session is on
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
		seen := uint32(0)
		for p.await(&seen) {
			p.work(w)
			p.left.Add(-1)
		}
		p.left.Add(-1)
	}
}

// await spins until the next region or the end of the session.
func (p *pool) await(seen *uint32) bool {
	for i := 0; ; i++ {
		if e := p.epoch.Load(); e != *seen {
			*seen = e
			return p.live.Load()
		}
		spin(i)
	}
}

// patience is how many pauses (some tens of microseconds) a waiting worker
// keeps the core to itself before it lets other processes run in between.
const patience = 500

func spin(i int) {
	pause()
	if i > patience {
		yield()
	}
}

func (p *pool) work(w int) {
	for {
		t := p.next.Add(1) - 1
		if t >= p.tasks {
			return
		}
		p.run(int(t), w)
	}
}

// start opens a session.
func (p *pool) start() {
	p.epoch.Store(0)
	p.live.Store(true)
	for _, c := range p.wake {
		c <- struct{}{}
	}
}

// stop ends the session and parks the workers.
func (p *pool) stop() {
	p.live.Store(false)
	p.left.Store(int32(len(p.wake)))
	p.epoch.Add(1)
	p.join()
}

func (p *pool) join() {
	for i := 0; p.left.Load() != 0; i++ {
		spin(i)
	}
}

// region runs tasks 0..tasks-1 and returns when all are done.
func (p *pool) region(tasks int, run func(task, worker int)) {
	if tasks == 1 || p.workers == 1 {
		for t := range tasks {
			run(t, 0)
		}
		return
	}
	p.run, p.tasks = run, int64(tasks)
	p.next.Store(0)
	p.left.Store(int32(len(p.wake)))
	p.epoch.Add(1)
	p.work(0)
	p.join()
}
