package cli

import (
	"archive/zip"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/snug-ml/snug/data/safetensors"
)

// torchSave is a command for scripts. It converts the model.safetensors of a folder to a pytorch_model.bin as
// written by torch.save. If the text of a pickle is given, it writes that instead.
func torchSave(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: torch-save FOLDER [PICKLE]")
	}
	dir := ts.MkAbs(args[0])
	from := filepath.Join(dir, "model.safetensors")
	f, err := safetensors.Open(from)
	ts.Check(err)
	defer func() { ts.Check(f.Close()) }()
	to, err := os.Create(filepath.Join(dir, "pytorch_model.bin"))
	ts.Check(err)
	defer func() { ts.Check(to.Close()) }()
	w := zip.NewWriter(to)
	defer func() { ts.Check(w.Close()) }()
	add := func(name string, data []byte) {
		e, err := w.CreateHeader(&zip.FileHeader{Name: "pytorch_model/" + name, Method: zip.Store})
		ts.Check(err)
		_, err = e.Write(data)
		ts.Check(err)
	}
	pickle := strings.Builder{}
	pickle.WriteString("\x80\x02}")
	for i, t := range f.Tensors() {
		x, err := f.Tensor(t.Name)
		ts.Check(err)
		key := fmt.Sprint(i)
		add("data/"+key, x.Data)
		pickle.WriteString(pickled(t, key))
	}
	pickle.WriteString(".")
	if len(args) == 2 {
		pickle.Reset()
		pickle.WriteString(ts.ReadFile(args[1]))
	}
	add("data.pkl", []byte(pickle.String()))
	ts.Check(os.Remove(from))
}

// pickled returns a pickle that sets a float32 tensor in the dictionary on the stack.
func pickled(t safetensors.Info, key string) string {
	text := func(s string) string { return "X" + string(binary.LittleEndian.AppendUint32(nil, uint32(len(s)))) + s }
	number := func(n int) string { return "J" + string(binary.LittleEndian.AppendUint32(nil, uint32(n))) }
	var shape, strides string
	elems := 1
	for i := len(t.Shape) - 1; i >= 0; i-- {
		shape, strides = number(t.Shape[i])+shape, number(elems)+strides
		elems *= t.Shape[i]
	}
	storage := "(" + text("storage") + "ctorch\nFloatStorage\n" + text(key) + text("cpu") + number(elems) + "tQ"
	return text(t.Name) + "ctorch._utils\n_rebuild_tensor_v2\n(" + storage + "K\x00(" + shape + "t(" + strides + "t\x89ccollections\nOrderedDict\n)RtRs"
}
