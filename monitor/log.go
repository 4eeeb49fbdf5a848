package monitor

import (
	"encoding/json"
	"sync"

	"github.com/snug-ml/snug/train/rundir"
)

// LogFile holds the messages of a run, one JSON object per line.
const LogFile = "log.jsonl"

// TextFile holds what a language model wrote at the end of its run.
const TextFile = "generated.txt"

// Level is the severity of a line.
type Level string

// The levels.
const (
	LevelInfo    Level = "info"
	LevelWarning Level = "warning"
	LevelError   Level = "error"
)

// LogLine is a line of the log of a run.
type LogLine struct {
	Time   float64 `json:"time"` // seconds since 1970
	Level  Level   `json:"level"`
	Update int64   `json:"update,omitempty"`
	Text   string  `json:"text"`
}

// maxLog bounds the log: when it gets longer, the older half is dropped.
const maxLog = 1 << 20

// LogWriter writes the log of a run, of at most 1 MiB. Any goroutine may use it.
type LogWriter struct {
	mu    sync.Mutex
	file  *lineFile
	lines [][]byte
}

// NewLogWriter continues the log of the run in dir.
func NewLogWriter(dir *rundir.Dir) (*LogWriter, error) {
	w := &LogWriter{}
	var err error
	w.file, err = openLines(dir, LogFile, func(raw []byte) {
		w.lines = append(w.lines, raw[:len(raw)-1])
	})
	if err != nil {
		return nil, err
	}
	return w, w.rewrite()
}

// Add writes a line. After an error the next successful write adds what is missing.
func (w *LogWriter) Add(l LogLine) error {
	l.Text = Printable(l.Text)
	line, err := json.Marshal(l)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, line)
	if w.file.size+int64(len(line)) > maxLog || !w.file.whole() {
		return w.rewrite()
	}
	return w.file.add(line)
}

// rewrite writes the lines that are kept: the newest ones, or those within half the bound
// if all would exceed it.
func (w *LogWriter) rewrite() error {
	size := 0
	for _, l := range w.lines {
		size += len(l) + 1
	}
	if size > maxLog {
		for size > maxLog/2 {
			size -= len(w.lines[0]) + 1
			w.lines = w.lines[1:]
		}
	}
	text := make([]byte, 0, size)
	for _, l := range w.lines {
		text = append(append(text, l...), '\n')
	}
	return w.file.rewrite(text)
}

// Close closes the file.
func (w *LogWriter) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.file.close()
}
