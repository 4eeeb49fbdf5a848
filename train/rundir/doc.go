// Package rundir is the folder of a run: who has it locked, which run it belongs
// to, and how files are written to it.
//
// It promises:
//
//   - One process locks a run folder; a second gets an error that names the first.
//   - A run has an identity, a random number in the folder's lock, in every
//     checkpoint's manifest and at the head of the metrics.
//   - What is written goes to the folder that was opened, wherever its name leads
//     meanwhile. A folder that was moved is followed, and the move is reported; one
//     that was removed, or whose lock is gone, is not written to, and a folder in its
//     place is never touched.
//   - Files of well-known names are written without following symbolic links.
package rundir
