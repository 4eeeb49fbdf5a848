package token

// A queue is a binary heap that returns the first item first.
type queue[T interface{ Before(T) bool }] []T

func (q *queue[T]) push(v T) {
	s := append(*q, v)
	for i := len(s) - 1; i > 0; {
		up := (i - 1) / 2
		if !s[i].Before(s[up]) {
			break
		}
		s[i], s[up] = s[up], s[i]
		i = up
	}
	*q = s
}

func (q *queue[T]) pop() T {
	s := *q
	first := s[0]
	last := len(s) - 1
	s[0] = s[last]
	s = s[:last]
	s.sink(0)
	*q = s
	return first
}

func (q queue[T]) sink(i int) {
	for {
		down := 2*i + 1
		if down >= len(q) {
			return
		}
		if down+1 < len(q) && q[down+1].Before(q[down]) {
			down++
		}
		if !q[down].Before(q[i]) {
			return
		}
		q[i], q[down] = q[down], q[i]
		i = down
	}
}

// order makes a queue of items in any order, in linear time.
func (q queue[T]) order() {
	for i := len(q)/2 - 1; i >= 0; i-- {
		q.sink(i)
	}
}
