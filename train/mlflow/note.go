package mlflow

import (
	"encoding/json"

	"github.com/snug-ml/snug/internal/regular"
	"github.com/snug-ml/snug/train/rundir"
)

// NoteFile is a run directory's record of its MLflow run.
const NoteFile = "mlflow.json"

// Note is the content of that file.
type Note struct {
	Run        string `json:"run"` // identity of the run; that of another counts for nothing
	Server     string `json:"server"`
	Experiment string `json:"experiment_id"`
	RunID      string `json:"run_id"`
	// Samples is the time of the newest look at the machine that was sent, in seconds
	// since 1970. Other metrics do not need this: the server knows.
	Samples float64 `json:"samples,omitempty"`
	// Done means that the server has everything and how the run ended.
	Done bool `json:"done,omitempty"`
}

// ReadNote returns the note of the run in dir. If that is lost or cannot be read, it is a
// note without a RunID: the server finds the run by its identity.
func ReadNote(dir *rundir.Dir) Note {
	var n Note
	text, err := dir.Read(NoteFile, regular.Text)
	if err != nil || json.Unmarshal(text, &n) != nil || n.Run != dir.ID() {
		return Note{Run: dir.ID()}
	}
	return n
}

// keep writes the note.
func (x *Exporter) keep() {
	_ = x.dir.ReplaceJSON(NoteFile, x.note) // not essential
}
