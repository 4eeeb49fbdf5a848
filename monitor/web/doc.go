// Package web shows runs in a browser: one page, which is in the binary, and events
// that carry what is new. It also tells Prometheus.
//
// A page holds a cursor for each run, which the server needs to remember nothing of:
// after a restart, of the page or of the server, it goes on where it was, and reads a
// run anew whose files were replaced. Series are thinned here to the lowest and highest
// point of each pixel; zooming asks for the range.
//
// What a run says is never HTML: it travels as JSON and becomes text.
package web
