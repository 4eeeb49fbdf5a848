// Package agiformer is the system "agiformer": a byte language model. Its blocks attend and then send each
// token to experts of several kinds. A memory precedes the blocks, and introspection follows them.
//
// Its guarantees:
//
//   - No token sees a later one, nor another sample of its batch, whatever the experts: a change of a byte
//     changes no bit of any output before it.
//   - Experts process only the tokens that are sent to them.
//   - The gradient reaches every weight, including those of the memory's writer, the router and the heads of
//     introspection.
//   - Every evaluation compares introspection's estimates with the truth, on held-out text.
//   - A text model contains no part of an image model.
package agiformer
