// Package agiformer is the system "agiformer": a byte language model of blocks
// that attend and then send each token to experts of several kinds, with a
// memory in front and introspection behind.
//
// It promises:
//
//   - No token sees a later one, nor another sample of its batch, whatever the
//     experts: a change behind a byte changes no bit of what is said before it.
//   - Experts work on the tokens that are sent to them, and on no others.
//   - Every weight is reached by the gradient, the memory's writer, the router
//     and the heads of introspection included.
//   - What introspection says of itself is measured against the truth, on
//     held-out text, in every evaluation.
//   - A model of text has nothing of a model of pictures in it.
package agiformer
