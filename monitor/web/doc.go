// Package web shows runs in a browser: one page, embedded in the binary, and events that
// carry what is new. It also serves metrics for Prometheus.
//
// A page holds a cursor for each run, so the server is stateless: after a restart of the
// page or the server, the page continues where it was, and reads a run again if its files
// were replaced. Series are thinned here to the lowest and highest point of each pixel;
// zooming asks for the range.
//
// Text from a run is never HTML: it is sent as JSON and shown as text.
package web
