// Package mlflow sends a run to an MLflow tracking server over its REST API.
//
// It promises:
//
//   - Training does not wait for the server. Requests are made on a goroutine of their
//     own; what is to be sent stays in the files of the run, so that a server that is away
//     for hours costs no memory and loses nothing.
//   - Errors that may go away are retried with growing, jittered pauses; of those that
//     will not, such as a wrong token, the first ends the export. There is one warning
//     for either, with what the server lacks and what to do.
//   - A resumed run continues the same MLflow run, which is found by the identity
//     of the run even if the note in its directory is lost. The server itself says how
//     far each metric has come, so no point is sent twice.
//   - No user, password or token is written to a file or a message.
package mlflow
