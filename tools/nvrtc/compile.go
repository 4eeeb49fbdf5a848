package main

import (
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/snug-ml/snug/engine/cuda/kernels"
	"github.com/snug-ml/snug/engine/cuda/ptxsim"
	"github.com/snug-ml/snug/internal/regular"
)

// compiler compiles CUDA C++ to PTX.
type compiler interface {
	Version() string
	Compile(name, source string, headers map[string]string, options []string) (string, error)
}

// shim is included before each source: it says in NVRTC's words what clang has names of its own for.
const shim = `
#define __nvvm_read_ptx_sreg_tid_x() threadIdx.x
#define __nvvm_read_ptx_sreg_ctaid_x() blockIdx.x
#define __nvvm_read_ptx_sreg_ctaid_y() blockIdx.y
#define __nvvm_read_ptx_sreg_ctaid_z() blockIdx.z
#define __nvvm_read_ptx_sreg_ntid_x() blockDim.x
#define __nvvm_read_ptx_sreg_nctaid_x() gridDim.x
#define __nvvm_read_ptx_sreg_nctaid_y() gridDim.y
#define __nvvm_read_ptx_sreg_nctaid_z() gridDim.z
#define __builtin_inff() __int_as_float(0x7f800000)
#define __builtin_nanf(s) __int_as_float(0x7fffffff)
#define __builtin_fmaf ::fmaf
#define __builtin_fma ::fma
#define __builtin_fabsf ::fabsf
#define __builtin_rintf ::rintf
#define __builtin_rint ::rint
#define __builtin_floorf ::floorf
#define __builtin_sqrtf ::sqrtf
#define __builtin_sqrt ::sqrt
#define __builtin_fmaxf ::fmaxf
#define __builtin_copysignf ::copysignf
#define __builtin_popcount __popc
#define __builtin_ctz(x) (__ffs(x) - 1)
`

// The address space of a pointer has no name in NVIDIA's C++. This is the only change to the sources.
const (
	changed       = "mma.h"
	sharedAddress = "(u64)(const void __attribute__((address_space(3))) *)p"
	instead       = "__cvta_generic_to_shared(p)"
)

// sources reads the folder of kernels: the headers, which sources are among, by name, and the names of families.
func sources(dir string) (headers map[string]string, families []string, err error) {
	headers = map[string]string{}
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, err
	}
	for _, f := range files {
		ext := filepath.Ext(f.Name())
		if ext != ".h" && ext != ".cu" {
			continue
		}
		text, err := regular.Read(filepath.Join(dir, f.Name()), 1<<20)
		if err != nil {
			return nil, nil, err
		}
		headers[f.Name()] = string(text)
		if ext == ".cu" {
			families = append(families, strings.TrimSuffix(f.Name(), ext))
		}
	}
	if strings.Count(headers[changed], sharedAddress) != 1 {
		return nil, nil, fmt.Errorf("%s does not have %q once, which NVRTC does not take", changed, sharedAddress)
	}
	headers[changed] = strings.Replace(headers[changed], sharedAddress, instead, 1)
	headers["shim.h"] = shim
	return headers, families, nil
}

// compileAll compiles the kernels in the folder from for every target, and writes them to the folder to as
// build.sh does.
func compileAll(c compiler, from, to string) (*kernels.Set, error) {
	headers, families, err := sources(from)
	if err != nil {
		return nil, err
	}
	for _, target := range kernels.Targets {
		dir := filepath.Join(to, "ptx", fmt.Sprintf("sm_%d", target))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
		for _, family := range families {
			name := family + ".cu"
			// NVRTC would also contract a product and a sum of different statements, where the sources want both
			// rounded. Clang contracts within expressions, so results differ in last bits.
			options := []string{fmt.Sprintf("-arch=compute_%d", target), "--std=c++20", "--pre-include=shim.h", "-default-device", "--fmad=false"}
			if family == "steps" { // functions that nothing calls
				options = append(options, "--relocatable-device-code=true")
			}
			text, err := c.Compile(name, headers[name], headers, options)
			if err != nil {
				return nil, err
			}
			if _, err := ptxsim.Parse(text); err != nil {
				return nil, fmt.Errorf("%s for sm_%d: the interpreter refuses %w", name, target, err)
			}
			if err := write(filepath.Join(dir, family+".ptx.gz"), marks.ReplaceAllString(text, "")); err != nil {
				return nil, err
			}
		}
	}
	return kernels.New(os.DirFS(to)), nil
}

// marks are comments around inline assembly, which build.sh takes out too.
var marks = regexp.MustCompile(`(?m)^[ \t]*// (begin|end) inline asm\n`)

func write(path, text string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := gzip.NewWriter(f)
	_, err = w.Write([]byte(text))
	return errors.Join(err, w.Close(), f.Close())
}
