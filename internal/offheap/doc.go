// Package offheap allocates memory outside the garbage collector's heap, for buffers as
// large as a model: the collector lets garbage grow to the size of the live heap, and
// would need as much again for each of them.
package offheap
