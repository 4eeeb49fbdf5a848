//go:build (amd64 || arm64) && !nocuda

package driver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/snug-ml/snug/internal/dynlib"
)

const (
	library = "libcuda.so.1"
	// assembler is the library that libcuda loads by its bare name to assemble PTX.
	assembler = "libnvidia-ptxjitcompiler.so.1"
)

// folders are where drivers are installed that the loader does not find by itself: on Colab, GKE and Kaggle,
// Debian and Ubuntu, Red Hat, WSL.
var folders = []string{"/usr/lib64-nvidia", "/usr/local/nvidia/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib/wsl/lib"}

// ErrNone means that no driver is installed.
var ErrNone = errors.New("no NVIDIA driver is installed (" + library + " was not found)")

// Open loads the installed driver. variables, which may be nil, are added to the environment that its library
// sees; only those of the first call in a process take effect.
func Open(variables func() map[string]string) (Driver, error) {
	handle, err := find()
	if err != nil {
		return nil, err
	}
	d := &libcuda{}
	missing := dynlib.Find(handle, d.symbols())
	dynlib.Find(handle, d.optional())
	if d.driverGetVersion != 0 { // works before cuInit
		var version int32
		if err := d.call("cuDriverGetVersion", d.driverGetVersion, uintptr(unsafe.Pointer(&version))); err != nil {
			return nil, err
		}
		d.version = int(version)
	}
	if len(missing) > 0 || d.version < Needed {
		return nil, &TooOld{d.version}
	}
	if variables != nil {
		for name, value := range variables() {
			if err := dynlib.Setenv(name, value); err != nil {
				return nil, err
			}
		}
	}
	if err := d.call("cuInit", d.init, 0); err != nil {
		return nil, err
	}
	return d, nil
}

// find loads the library. Colab names its folder only in LD_LIBRARY_PATH, and may have another library on the
// loader's path.
func find() (uintptr, error) {
	paths := filepath.SplitList(os.Getenv("LD_LIBRARY_PATH"))
	var refused error
	for _, dir := range append(append(paths, ""), folders...) {
		path := library
		if dir != "" {
			path = filepath.Join(dir, library)
			if _, err := os.Stat(path); err != nil || strings.Contains(path, "/stubs/") {
				continue
			}
			// The library does not look for the assembler in its own folder.
			if sibling := filepath.Join(dir, assembler); exists(sibling) {
				_, _ = dynlib.LoadGlobal(sibling) // a missing assembler is reported when code is assembled
			}
		}
		handle, err := dynlib.LoadGlobal(path)
		if err == nil {
			return handle, nil
		}
		if dir != "" || !dynlib.NotFound(err) {
			refused = err
		}
	}
	if refused != nil {
		return 0, fmt.Errorf("the NVIDIA driver cannot be loaded: %w", refused)
	}
	return 0, ErrNone
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// libcuda holds the addresses of the driver's functions.
type libcuda struct {
	version int

	init, driverGetVersion                                                                 uintptr
	deviceGetCount, deviceGet, deviceGetName, deviceGetUUID, deviceGetAttribute            uintptr
	deviceTotalMem, primaryCtxSetFlags, primaryCtxRetain, primaryCtxRelease, ctxSetCurrent uintptr
	memGetInfo, memAlloc, memFree, memHostAlloc, memFreeHost                               uintptr
	memcpyHtoDAsync, memcpyDtoHAsync, memsetD8Async                                        uintptr
	moduleLoadDataEx, moduleUnload, moduleGetFunction, funcGetAttribute, funcSetAttribute  uintptr
	streamCreate, streamDestroy, streamSynchronize, streamQuery, streamWaitEvent           uintptr
	launchKernel                                                                           uintptr
	eventCreate, eventDestroy, eventRecord, eventSynchronize, eventElapsedTime             uintptr
	streamBeginCapture, streamEndCapture, graphInstantiate, graphDestroy, graphLaunch      uintptr
	graphUpload, graphExecDestroy                                                          uintptr
	// Not all drivers have these functions.
	deviceGetUUIDv1, funcLoad uintptr
}

func (d *libcuda) symbols() map[string]*uintptr {
	return map[string]*uintptr{
		"cuInit": &d.init, "cuDriverGetVersion": &d.driverGetVersion,
		"cuDeviceGetCount": &d.deviceGetCount, "cuDeviceGet": &d.deviceGet, "cuDeviceGetName": &d.deviceGetName,
		"cuDeviceGetUuid_v2": &d.deviceGetUUID, "cuDeviceGetAttribute": &d.deviceGetAttribute, "cuDeviceTotalMem_v2": &d.deviceTotalMem,
		"cuDevicePrimaryCtxSetFlags_v2": &d.primaryCtxSetFlags, "cuDevicePrimaryCtxRetain": &d.primaryCtxRetain,
		"cuDevicePrimaryCtxRelease_v2": &d.primaryCtxRelease, "cuCtxSetCurrent": &d.ctxSetCurrent,
		"cuMemGetInfo_v2": &d.memGetInfo, "cuMemAlloc_v2": &d.memAlloc, "cuMemFree_v2": &d.memFree,
		"cuMemHostAlloc": &d.memHostAlloc, "cuMemFreeHost": &d.memFreeHost,
		"cuMemcpyHtoDAsync_v2": &d.memcpyHtoDAsync, "cuMemcpyDtoHAsync_v2": &d.memcpyDtoHAsync,
		"cuMemsetD8Async":    &d.memsetD8Async,
		"cuModuleLoadDataEx": &d.moduleLoadDataEx, "cuModuleUnload": &d.moduleUnload, "cuModuleGetFunction": &d.moduleGetFunction,
		"cuFuncGetAttribute": &d.funcGetAttribute, "cuFuncSetAttribute": &d.funcSetAttribute,
		"cuStreamCreate": &d.streamCreate, "cuStreamDestroy_v2": &d.streamDestroy, "cuStreamSynchronize": &d.streamSynchronize, "cuStreamQuery": &d.streamQuery,
		"cuStreamWaitEvent": &d.streamWaitEvent, "cuLaunchKernel": &d.launchKernel,
		"cuEventCreate": &d.eventCreate, "cuEventDestroy_v2": &d.eventDestroy, "cuEventRecord": &d.eventRecord,
		"cuEventSynchronize": &d.eventSynchronize, "cuEventElapsedTime": &d.eventElapsedTime,
		"cuStreamBeginCapture_v2": &d.streamBeginCapture, "cuStreamEndCapture": &d.streamEndCapture,
		"cuGraphInstantiateWithFlags": &d.graphInstantiate, "cuGraphDestroy": &d.graphDestroy,
		"cuGraphUpload": &d.graphUpload, "cuGraphLaunch": &d.graphLaunch, "cuGraphExecDestroy": &d.graphExecDestroy,
	}
}

// optional lists the functions that a driver may lack.
func (d *libcuda) optional() map[string]*uintptr {
	return map[string]*uintptr{"cuDeviceGetUuid": &d.deviceGetUUIDv1, "cuFuncLoad": &d.funcLoad}
}

// call calls a function of the driver; memory that its arguments point to stays
// where it is meanwhile.
//
//go:uintptrescapes
func (d *libcuda) call(name string, f uintptr, args ...uintptr) error {
	r, _, _ := purego.SyscallN(f, args...)
	if code := Code(int32(r)); code != 0 {
		return &Error{Call: name, Code: code}
	}
	return nil
}

// Version implements [Driver].
func (d *libcuda) Version() int { return d.version }

// These are attributes for cuDeviceGetAttribute.
const (
	attrClock       = 13
	attrSMs         = 16
	attrMemoryClock = 36
	attrBusBits     = 37
	attrMajor       = 75
	attrMinor       = 76
)

// uuid identifies a card. For a MIG slice, the first version of the function gives the whole card's UUID, the
// second the slice's own.
func (d *libcuda) uuid(dev int32, name string) (string, error) {
	var id, whole [16]byte
	if err := d.call("cuDeviceGetUuid_v2", d.deviceGetUUID, uintptr(unsafe.Pointer(&id)), uintptr(dev)); err != nil {
		return "", err
	}
	slice := strings.Contains(name, " MIG ")
	if d.deviceGetUUIDv1 != 0 {
		if err := d.call("cuDeviceGetUuid", d.deviceGetUUIDv1, uintptr(unsafe.Pointer(&whole)), uintptr(dev)); err != nil {
			return "", err
		}
		slice = slice || whole != id
	}
	kind := "GPU"
	if slice {
		kind = "MIG"
	}
	return fmt.Sprintf("%s-%x-%x-%x-%x-%x", kind, id[:4], id[4:6], id[6:8], id[8:10], id[10:]), nil
}

// Cards implements [Driver].
func (d *libcuda) Cards() (cards []Card, err error) {
	var n int32
	if err := d.call("cuDeviceGetCount", d.deviceGetCount, uintptr(unsafe.Pointer(&n))); err != nil {
		return nil, err
	}
	cards = make([]Card, n)
	for i := range cards {
		var dev int32
		if err := d.call("cuDeviceGet", d.deviceGet, uintptr(unsafe.Pointer(&dev)), uintptr(i)); err != nil {
			return nil, err
		}
		c := &cards[i]
		c.Index = i
		name := make([]byte, 256)
		if err := d.call("cuDeviceGetName", d.deviceGetName, uintptr(unsafe.Pointer(&name[0])), uintptr(len(name)), uintptr(dev)); err != nil {
			return nil, err
		}
		c.Name, _, _ = strings.Cut(string(name), "\x00")
		if c.UUID, err = d.uuid(dev, c.Name); err != nil {
			return nil, err
		}
		var total uint64
		if err := d.call("cuDeviceTotalMem", d.deviceTotalMem, uintptr(unsafe.Pointer(&total)), uintptr(dev)); err != nil {
			return nil, err
		}
		c.Memory = int64(total)
		for _, a := range []struct {
			what uintptr
			to   *int
		}{
			{attrMajor, &c.Major}, {attrMinor, &c.Minor}, {attrSMs, &c.SMs},
			{attrClock, &c.ClockKHz}, {attrMemoryClock, &c.MemoryClockKHz}, {attrBusBits, &c.BusBits},
		} {
			var v int32
			if err := d.call("cuDeviceGetAttribute", d.deviceGetAttribute, uintptr(unsafe.Pointer(&v)), a.what, uintptr(dev)); err != nil {
				return nil, err
			}
			*a.to = int(v)
		}
	}
	return cards, nil
}
