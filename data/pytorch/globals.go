package pytorch

import (
	"fmt"

	"github.com/snug-ml/snug/data/safetensors"
)

// A pickle's values are nil, bool, int64, float64, string and the types here.
type (
	tuple []any
	list  struct{ items []any }
	dict  struct{ keys, values []any }
	// global is a name that the pickle refers to.
	global struct{ module, name string }
	// view is a tensor: a part of a storage.
	view struct {
		storage *storage
		offset  int64 // in elements
		shape   []int
		strides []int64
	}
)

func (g global) String() string { return g.module + "." + g.name }

// storageTypes are the element types of the storages that a pickle names.
var storageTypes = map[global]safetensors.DType{
	{"torch", "DoubleStorage"}:       safetensors.F64,
	{"torch", "FloatStorage"}:        safetensors.F32,
	{"torch", "HalfStorage"}:         safetensors.F16,
	{"torch", "BFloat16Storage"}:     safetensors.BF16,
	{"torch", "LongStorage"}:         safetensors.I64,
	{"torch", "IntStorage"}:          safetensors.I32,
	{"torch", "ShortStorage"}:        safetensors.I16,
	{"torch", "CharStorage"}:         safetensors.I8,
	{"torch", "ByteStorage"}:         safetensors.U8,
	{"torch", "BoolStorage"}:         safetensors.BOOL,
	{"torch", "ComplexFloatStorage"}: safetensors.C64,
	// Its elements have the type of the tensor that is built from it.
	{"torch.storage", "UntypedStorage"}: safetensors.U8,
}

// tensorTypes are the types that _rebuild_tensor_v3 is called with.
var tensorTypes = map[global]safetensors.DType{
	{"torch", "uint16"}: safetensors.U16, {"torch", "uint32"}: safetensors.U32, {"torch", "uint64"}: safetensors.U64,
	{"torch", "float8_e4m3fn"}: safetensors.F8E4M3, {"torch", "float8_e5m2"}: safetensors.F8E5M2,
	{"torch", "float8_e4m3fnuz"}: safetensors.F8E4M3FNUZ, {"torch", "float8_e5m2fnuz"}: safetensors.F8E5M2FNUZ,
	{"torch", "float8_e8m0fnu"}: safetensors.F8E8M0,
}

// constructors are everything that a pickle may call.
var constructors = map[global]func(args tuple) (any, error){
	{"collections", "OrderedDict"}:                    orderedDict,
	{"torch", "Size"}:                                 size,
	{"torch._utils", "_rebuild_tensor"}:               func(a tuple) (any, error) { return rebuildTensor(a, 4, 4) },
	{"torch._utils", "_rebuild_tensor_v2"}:            func(a tuple) (any, error) { return rebuildTensor(a, 6, 7) },
	{"torch._utils", "_rebuild_tensor_v3"}:            rebuildTyped,
	{"torch._utils", "_rebuild_parameter"}:            parameter,
	{"torch._utils", "_rebuild_parameter_with_state"}: parameter,
}

// known reports whether a pickle of tensors may use a name.
func known(g global) bool {
	_, typed := storageTypes[g]
	_, dtype := tensorTypes[g]
	_, called := constructors[g]
	return typed || dtype || called
}

func orderedDict(args tuple) (any, error) {
	d := &dict{}
	if len(args) == 0 {
		return d, nil
	}
	pairs, ok := args[0].(*list)
	if len(args) != 1 || !ok {
		return nil, fmt.Errorf("OrderedDict wants a list of pairs")
	}
	for _, p := range pairs.items {
		switch p := p.(type) {
		case tuple:
			if len(p) == 2 {
				d.set(p[0], p[1])
				continue
			}
		case *list:
			if len(p.items) == 2 {
				d.set(p.items[0], p.items[1])
				continue
			}
		}
		return nil, fmt.Errorf("OrderedDict wants a list of pairs")
	}
	return d, nil
}

func (d *dict) set(key, value any) {
	d.keys, d.values = append(d.keys, key), append(d.values, value)
}

func size(args tuple) (any, error) {
	if len(args) == 1 {
		if t, ok := args[0].(tuple); ok {
			return t, nil
		}
	}
	return nil, fmt.Errorf("torch.Size wants a tuple")
}

// parameter returns the tensor of a parameter.
func parameter(args tuple) (any, error) {
	if len(args) == 3 || len(args) == 4 {
		if v, ok := args[0].(*view); ok {
			return v, nil
		}
	}
	return nil, fmt.Errorf("a parameter wants a tensor, whether it is trained, and hooks")
}

// rebuildTensor makes a tensor of a storage, an offset, a shape and strides.
// What follows (hooks, gradient) does not affect its values.
func rebuildTensor(args tuple, least, most int) (any, error) {
	if len(args) < least || len(args) > most {
		return nil, fmt.Errorf("a tensor wants %d to %d arguments, got %d", least, most, len(args))
	}
	s, ok := args[0].(*storage)
	if !ok {
		return nil, fmt.Errorf("a tensor wants a storage, got %s", kind(args[0]))
	}
	if len(args) == 7 { // conjugate and negative views
		if d, ok := args[6].(*dict); args[6] != nil && (!ok || len(d.keys) > 0) {
			return nil, fmt.Errorf("a tensor with metadata is a conjugate or negative view: save a copy of it (.resolve_conj().resolve_neg())")
		}
	}
	offset, ok := args[1].(int64)
	shape, ok2 := args[2].(tuple)
	strides, ok3 := args[3].(tuple)
	if !ok || !ok2 || !ok3 {
		return nil, fmt.Errorf("a tensor wants an offset, a shape and strides")
	}
	return newView(s, offset, shape, strides)
}

// rebuildTyped is rebuildTensor of a storage without a type.
func rebuildTyped(args tuple) (any, error) {
	if len(args) != 7 && len(args) != 8 {
		return nil, fmt.Errorf("a tensor wants 7 or 8 arguments, got %d", len(args))
	}
	s, ok := args[0].(*storage)
	g, ok2 := args[6].(global)
	dtype, ok3 := tensorTypes[g]
	if !ok || !ok2 || !ok3 {
		return nil, fmt.Errorf("a tensor wants a storage and a type, got %s and %s", kind(args[0]), kind(args[6]))
	}
	s, err := s.as(dtype)
	if err != nil {
		return nil, err
	}
	return rebuildTensor(append(tuple{s}, args[1:6]...), 6, 6)
}

// kind names a value of a pickle in messages.
func kind(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		return "a bool"
	case int64, float64:
		return "a number"
	case string:
		return "a string"
	case tuple:
		return "a tuple"
	case *list:
		return "a list"
	case *dict:
		return "a dictionary"
	case global:
		return v.String()
	case *storage:
		return "a storage"
	case *view:
		return "a tensor"
	}
	return fmt.Sprintf("%T", v)
}
