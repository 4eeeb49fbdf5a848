// Package remote copies checkpoints to where they outlive the machine: a folder
// (file://), an S3 bucket (s3://) or a Google Cloud Storage bucket (gs://,
// through its S3 interface).
//
// It promises:
//
//   - A checkpoint counts as uploaded when each object has been verified on the
//     far side (size and hash) and, after all others, its upload.json has been
//     written. Latest and Pull trust nothing else.
//   - Uploads run in the background of training and never stop it. What is to be
//     uploaded is queued on disk and survives a kill; a large object continues from the
//     parts that have arrived.
//   - Retention does not delete a queued checkpoint; the queue is bounded, and
//     checkpoints displaced by a newer one are reported.
//   - Transient errors are retried with growing, jittered pauses; permanent ones, such
//     as a wrong key, stop at once and say what to check.
//   - Pulled checkpoints are verified like local ones before they take their place.
//
// Under the URL's prefix a checkpoint is stored in step-00000042/, with the names it has locally; a
// compressed file ends in .snugpak (bytes of floats grouped by significance, then zstd).
package remote
