package cpu

import (
	"sync/atomic"
	"testing"
	"time"
)

// Every task of every region runs exactly once, before the region returns, in
// sessions that follow each other closely and for more workers than cores.
func TestPoolRunsEveryTaskOnce(t *testing.T) {
	for _, workers := range []int{1, 2, 3, 8} {
		p := newPool(workers)
		for session := range 50 {
			p.start()
			for _, tasks := range []int{0, 1, 2, 3, 7, 64, 1000} {
				var count [1000]int32 // plain writes: -race sees a region that ends too soon
				p.region(tasks, func(task, w int) {
					if w < 0 || w >= workers {
						t.Errorf("worker %d of %d", w, workers)
					}
					count[task]++
				})
				for i, c := range count {
					if want := int32(0); i < tasks {
						want = 1
						if c != want {
							t.Fatalf("%d workers, session %d: task %d of %d ran %d times", workers, session, i, tasks, c)
						}
					} else if c != want {
						t.Fatalf("task %d beyond %d ran", i, tasks)
					}
				}
			}
			p.stop()
		}
		p.close()
	}
}

// A worker has one task at a time: its scratch is its own.
func TestPoolWorkerIsAlone(t *testing.T) {
	p := newPool(4)
	defer p.close()
	var busy [4]atomic.Bool
	p.start()
	for range 200 {
		p.region(50, func(_, w int) {
			if !busy[w].CompareAndSwap(false, true) {
				t.Error("two tasks on one worker")
			}
			busy[w].Store(false)
		})
	}
	p.stop()
}

// A region does not wait for workers that are busy elsewhere: one task blocks until all
// others, which the remaining worker must run, are done.
func TestPoolDoesNotWaitForSlowWorkers(t *testing.T) {
	p := newPool(2)
	defer p.close()
	p.start()
	defer p.stop()
	done := make(chan struct{})
	var others atomic.Int32
	go func() {
		defer close(done)
		p.region(100, func(task, _ int) {
			if task > 0 {
				others.Add(1)
				return
			}
			for others.Load() != 99 {
				time.Sleep(time.Millisecond)
			}
		})
	}()
	select {
	case <-done:
	case <-time.After(5 * time.Minute):
		t.Fatal("the region does not end")
	}
}
