// Package terminal shows runs in a terminal: losses, evaluations, speed, memory, the
// machine, advice and the log, from the snapshots of package monitor.
//
// A [Model] is pure: messages go in, and View returns the screen as text, so that tests
// can compare it with files. [Watcher] reads run directories at a bounded cost, [Show]
// connects the two to a real terminal, and [Line] shows a run in one line if there is no
// terminal.
package terminal
