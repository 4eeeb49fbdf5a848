// Package agiformer is the system "agiformer": a byte language model of blocks
// that attend and then send each token to experts of several kinds, with a memory
// before and introspection after them.
//
// It promises:
//
//   - No token sees a later one, nor another sample of its batch, whatever the
//     experts: a change after a byte changes no bit of any output before it.
//   - Experts work on the tokens that are sent to them, and on no others.
//   - Every weight is reached by the gradient, the memory's writer, the router
//     and the heads of introspection included.
//   - Introspection's estimates are measured against the truth, on held-out text,
//     in every evaluation.
//   - A text model contains no part of an image model.
package agiformer
