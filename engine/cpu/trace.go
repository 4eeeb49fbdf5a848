package cpu

import "github.com/snug-ml/snug/engine/graph"

// Trace runs the code once, node by node, telling before and after of each;
// it ends early when after says false.
func (c *Code) Trace(before func(n *graph.Node), after func(n *graph.Node) bool) error {
	m := c.m
	m.fault.Store(nil)
	m.pool.start()
	defer m.pool.stop()
	for i := range c.steps {
		s := &c.steps[i]
		before(s.node)
		for _, p := range s.phases {
			m.pool.region(p.tasks, p.run)
		}
		if err := m.fault.Load(); err != nil {
			return *err
		}
		if !after(s.node) {
			return nil
		}
	}
	return nil
}
