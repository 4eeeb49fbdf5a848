// Package rundir is the folder of a run: who holds it, which run it belongs to,
// and how files get into it.
//
// It promises:
//
//   - One process holds a run folder; a second is told who the first is.
//   - A run has an identity, a random number in the folder's lock, in every
//     checkpoint's manifest and at the head of the metrics.
//   - What is written goes to the folder that was opened, wherever its name
//     leads meanwhile. A folder that was moved is followed, and that is said;
//     of one that was removed, or whose lock was taken away, nothing is left to
//     write to, and a folder that somebody made in its place is never touched.
//   - Files of well-known names are written without following symbolic links.
package rundir
