package cli

import (
	"compress/gzip"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/snug-ml/snug/data/npz/npztest"
)

// makeData is a command for scripts. It writes the texts of corpus/*.txt to the given files, each in the
// format of its name.
func makeData() {
	if err := writeData(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func writeData(files []string) error {
	names, err := filepath.Glob("corpus/*.txt")
	if err != nil {
		return err
	}
	var texts []string
	for _, n := range names {
		raw, err := os.ReadFile(n)
		if err != nil {
			return err
		}
		texts = append(texts, string(raw))
	}
	for _, file := range files {
		if err := writeFormat(file, texts); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return nil
}

type textRow struct {
	Text string `json:"text" parquet:"text"`
	N    int    `json:"n" parquet:"n"`
}

func writeFormat(file string, texts []string) (err error) {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	var w io.Writer = f
	name := file
	switch filepath.Ext(file) {
	case ".gz":
		z := gzip.NewWriter(f)
		defer func() { err = errors.Join(err, z.Close()) }()
		w, name = z, strings.TrimSuffix(file, ".gz")
	case ".zst":
		z, err := zstd.NewWriter(f)
		if err != nil {
			return err
		}
		defer func() { _ = z.Close() }() // the script would notice missing data
		w, name = z, strings.TrimSuffix(file, ".zst")
	}
	var rows []textRow
	for i, t := range texts {
		rows = append(rows, textRow{t, i})
	}
	switch filepath.Ext(name) {
	case ".jsonl":
		for _, r := range rows {
			if err := json.NewEncoder(w).Encode(r); err != nil {
				return err
			}
		}
		return nil
	case ".json":
		return json.NewEncoder(w).Encode(map[string]any{"version": 1, "data": rows})
	case ".csv":
		c := csv.NewWriter(w)
		if err := c.Write([]string{"n", "text"}); err != nil {
			return err
		}
		for _, r := range rows {
			if err := c.Write([]string{fmt.Sprint(r.N), r.Text}); err != nil {
				return err
			}
		}
		c.Flush()
		return c.Error()
	case ".tsv":
		for _, r := range append([]textRow{{"text", 0}}, rows...) {
			if _, err := fmt.Fprintf(w, "%s\t%d\n", r.Text, r.N); err != nil {
				return err
			}
		}
		return nil
	case ".parquet":
		p := parquet.NewGenericWriter[textRow](w)
		if _, err := p.Write(rows); err != nil {
			return err
		}
		return p.Close()
	case ".npz":
		return writeTokens(w, texts)
	}
	return errors.New("no format of this name")
}

// writeTokens writes bytes as ids, one row per text.
func writeTokens(w io.Writer, texts []string) error {
	longest := 0
	for _, t := range texts {
		longest = max(longest, len(t))
	}
	ids, lengths := make([]int32, len(texts)*longest), make([]int32, len(texts))
	for i, t := range texts {
		for j, b := range []byte(t) {
			ids[i*longest+j] = int32(b) + 1 // 0 marks the end of text
		}
		lengths[i] = int32(len(t))
	}
	z := npztest.NewWriter(w)
	if err := z.Write("input_ids", []int{len(texts), longest}, ids); err != nil {
		return err
	}
	if err := z.Write("sequence_lengths", []int{len(texts)}, lengths); err != nil {
		return err
	}
	return z.Close()
}

// serveHub is a command for scripts. It serves the given folder as the repository owner/name of a hub, both
// as a model and as a dataset, and sets HF_ENDPOINT and HF_HOME.
func serveHub(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: serve-hub FOLDER")
	}
	const commit = "0123456789abcdef0123456789abcdef01234567"
	dir := ts.MkAbs(args[0])
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Repo-Commit", commit)
		p := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/"), "datasets/")
		if strings.HasPrefix(p, "api/") {
			type file struct {
				Name string `json:"rfilename"`
			}
			files := []file{}
			list, err := os.ReadDir(dir)
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			for _, e := range list {
				files = append(files, file{e.Name()})
			}
			_ = json.NewEncoder(w).Encode(map[string]any{"sha": commit, "siblings": files}) // the client would notice an error
			return
		}
		name, ok := strings.CutPrefix(p, "owner/name/resolve/"+commit+"/")
		raw, err := os.ReadFile(filepath.Join(dir, name))
		if !ok || err != nil {
			w.Header().Set("X-Error-Code", "EntryNotFound")
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("ETag", fmt.Sprintf(`"%x"`, len(raw)))
		_, _ = w.Write(raw) // the client would notice an error
	}))
	ts.Defer(s.Close)
	ts.Setenv("HF_ENDPOINT", s.URL)
	ts.Setenv("HF_HOME", ts.MkAbs("hf-home"))
}

// damage is a command for scripts that damages a file: "cut FILE BYTES" shortens it, "flip FILE OFFSET"
// changes a bit, counting from the end if negative, and "put FILE OFFSET TEXT" overwrites part of it, with
// Go's escapes.
func damage(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: damage cut|flip|put FILE N [TEXT]")
	}
	path := ts.MkAbs(args[1])
	raw, err := os.ReadFile(path)
	ts.Check(err)
	n, err := strconv.Atoi(args[2])
	ts.Check(err)
	if n < 0 {
		n += len(raw)
	}
	switch args[0] {
	case "cut":
		raw = raw[:n]
	case "flip":
		raw[n] ^= 1
	case "put":
		text, err := strconv.Unquote(`"` + args[3] + `"`)
		ts.Check(err)
		copy(raw[n:], text)
	default:
		ts.Fatalf("damage %s: no such damage", args[0])
	}
	ts.Check(os.WriteFile(path, raw, 0o666))
}
