// Package offheap has memory outside the garbage collector's heap, for buffers as
// large as a model: the collector lets garbage grow to the size of what it keeps, and
// would need as much again for each of them.
package offheap
