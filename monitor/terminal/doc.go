// Package terminal shows runs in a terminal: losses, evaluations, speed, memory, the
// machine, advice and the log, over the snapshots of package monitor.
//
// A [Model] is pure: messages go in, and View gives the screen as text, so that tests
// compare it with files. [Watcher] reads run directories at a bounded cost, [Show]
// joins the two on a real terminal, and [Line] is the same in one line, where there
// is no terminal.
package terminal
