package driver

import (
	"fmt"
	"maps"
	"slices"
)

// Error is a failed call of the driver.
type Error struct {
	Call string // the function of the driver API
	Code Code
	// Log is the assembler's output if it rejected code.
	Log string
}

// Code is a CUresult.
type Code int32

// These are the codes that snug explains.
const (
	InvalidValue      Code = 1
	OutOfMemory       Code = 2
	NotInitialized    Code = 3
	StubLibrary       Code = 34
	NewerDriver       Code = 36
	DeviceUnavailable Code = 46
	NoDevice          Code = 100
	InvalidDevice     Code = 101
	NotLicensed       Code = 102
	InvalidImage      Code = 200
	InvalidContext    Code = 201
	NoBinaryForGPU    Code = 209
	ECCUncorrectable  Code = 214
	InvalidPTX        Code = 218
	NVLinkBroken      Code = 220
	JITNotFound       Code = 221
	UnsupportedPTX    Code = 222
	JITDisabled       Code = 223
	Contained         Code = 226
	OperatingSystem   Code = 304
	InvalidHandle     Code = 400
	NotFound          Code = 500
	NotReady          Code = 600
	IllegalAddress    Code = 700
	TooManyResources  Code = 701
	LaunchTimeout     Code = 702
	ContextDestroyed  Code = 709
	Assert            Code = 710
	HardwareStack     Code = 714
	IllegalOpcode     Code = 715
	MisalignedAddress Code = 716
	WrongSpace        Code = 717
	InvalidPC         Code = 718
	LaunchFailed      Code = 719
	NotPermitted      Code = 800
	NotSupported      Code = 801
	SystemNotReady    Code = 802
	SystemMismatch    Code = 803
	NotCompatible     Code = 804
	MPSUnreachable    Code = 805
	MPSTerminated     Code = 810
	// These come from calls that a capture does not allow, and from later calls of that capture.
	CaptureUnsupported Code = 900
	CaptureInvalidated Code = 901
	CaptureMerge       Code = 902
	CaptureUnmatched   Code = 903
	CaptureUnjoined    Code = 904
	CaptureIsolation   Code = 905
	CapturedEvent      Code = 907
	Unknown            Code = 999
)

var meanings = map[Code]string{
	InvalidValue:      "an argument is out of range",
	OutOfMemory:       "the card has too little free memory",
	NotInitialized:    "the driver is not initialized",
	StubLibrary:       "the library found is NVIDIA's stub for linking programs, no driver",
	NewerDriver:       "the driver is too old for this call",
	NotLicensed:       "the virtual card has no license",
	JITDisabled:       "the driver may not assemble code",
	Contained:         "the card's memory reported an uncorrectable error, which only this process meets",
	OperatingSystem:   "a call of the operating system failed",
	ContextDestroyed:  "the context is gone",
	HardwareStack:     "a kernel's call stack is broken",
	WrongSpace:        "a kernel used an address of another kind of memory",
	InvalidPC:         "a kernel jumped outside its code",
	NotSupported:      "the card, its driver or the system cannot do it",
	NotCompatible:     "the library is newer than the driver's kernel module, which this card does not allow",
	MPSUnreachable:    "the server that shares the card between processes (MPS) does not answer",
	MPSTerminated:     "the server that shares the card between processes (MPS) ended this one's use of it",
	DeviceUnavailable: "another process has exclusive use of the card",
	NoDevice:          "there is no NVIDIA card",
	InvalidDevice:     "there is no card with that number",
	InvalidImage:      "the code is none that the driver can load",
	InvalidContext:    "the context is not valid",
	NoBinaryForGPU:    "the code does not fit the card",
	ECCUncorrectable:  "the card's memory reported an uncorrectable error",
	NVLinkBroken:      "the link between cards reported an uncorrectable error",
	InvalidPTX:        "the assembler refused the code",
	JITNotFound:       "the driver's assembler, libnvidia-ptxjitcompiler, is not installed next to it",
	UnsupportedPTX:    "the driver is too old for the code",
	InvalidHandle:     "the object is none that the call can use",
	NotFound:          "the name was not found",
	NotReady:          "the work is not done",
	IllegalAddress:    "a kernel read or wrote outside its memory",
	TooManyResources:  "a kernel needs more registers or shared memory than the card has",
	LaunchTimeout:     "a kernel ran longer than the system allows",
	Assert:            "a check within a kernel failed",
	IllegalOpcode:     "a kernel had an instruction that the card does not know",
	MisalignedAddress: "a kernel used an address that is not aligned",
	LaunchFailed:      "a kernel failed",
	NotPermitted:      "the system does not permit it",

	CaptureUnsupported: "a graph is being captured, which does not allow it",
	CaptureInvalidated: "the graph that was being captured is lost by an earlier error",
	CaptureMerge:       "two graphs that are being captured would become one",
	CaptureUnmatched:   "no graph is being captured from this stream",
	CaptureUnjoined:    "the graph that was being captured does not wait for all of its work",
	CaptureIsolation:   "a graph that is being captured would depend on work outside it",
	CapturedEvent:      "the event belongs to a graph that is being captured",

	SystemNotReady: "the system's services for the card are not running",
	SystemMismatch: "the driver's kernel module and its library are of different versions",
	Unknown:        "the driver gives no reason",
}

const (
	report = "please report this text, and what `nvidia-smi` says"
	fault  = "a fault in snug's kernels or in the card: please report this text, with the operation that fails (`snug check RUN --faults --update N` names it)"
)

// helps says what to do about an error.
var helps = map[Code]string{
	OutOfMemory:       "another process may be using the card: `nvidia-smi` names it",
	DeviceUnavailable: "wait for it, or allow several processes (`nvidia-smi -c 0`); `nvidia-smi` names the process",
	NoDevice:          "check `nvidia-smi`; in a container, give it the card (--gpus all); of a card in MIG mode, make a slice (`nvidia-smi mig -cgi ... -C`); see what CUDA_VISIBLE_DEVICES says",
	StubLibrary:       "take its folder (stubs) out of LD_LIBRARY_PATH; if there is no other libcuda.so.1, install the driver, or in a container give it the card (--gpus all)",
	NewerDriver:       "update the driver",
	NotLicensed:       "`nvidia-smi -q | grep -i license` says more; ask who runs the machine",
	JITDisabled:       "unset CUDA_DISABLE_PTX_JIT",
	Contained:         "continue from the newest checkpoint (`snug train --resume`); if it comes back, the card is faulty",
	OperatingSystem:   "`dmesg` may say why; in a container or a sandbox, see that it may use /dev/nvidia*",
	ContextDestroyed:  "`dmesg | grep -i xid` may say why: the card may have been reset",
	HardwareStack:     fault,
	WrongSpace:        fault,
	InvalidPC:         fault,
	NotCompatible:     "in a container, remove the package cuda-compat or its folder (compat) from LD_LIBRARY_PATH, or update the host's driver",
	MPSUnreachable:    "start it (nvidia-cuda-mps-control -d), or unset CUDA_MPS_PIPE_DIRECTORY",
	MPSTerminated:     "another process of the same card may have failed: see the server's log",
	IllegalAddress:    fault,
	Assert:            fault,
	IllegalOpcode:     fault,
	MisalignedAddress: fault,
	LaunchFailed:      fault,
	InvalidDevice:     "`snug doctor` lists the cards",
	ECCUncorrectable:  "reset the card (`nvidia-smi -r`) or restart the machine; if it comes back, the card is faulty",
	NVLinkBroken:      "restart the machine; if it comes back, the card is faulty",
	NotInitialized:    "restart the machine; if it comes back, install the driver anew",
	NotPermitted:      "run as a user who may use /dev/nvidia*; in a container, give it the card (--gpus all); on a machine that is shared, ask who runs it",
	InvalidPTX:        "update the driver; if a current one refuses it too, please report this text with the log",
	UnsupportedPTX:    "a driver of CUDA 11.4 or later is needed (470 and up)",
	JITNotFound:       "install libnvidia-ptxjitcompiler of the driver's version (in a container: NVIDIA_DRIVER_CAPABILITIES=compute,utility)",
	LaunchTimeout:     "turn off the time limit of a card that drives a display, or use another card",
	SystemNotReady:    "start NVIDIA's services (nvidia-fabricmanager, on machines with NVSwitch)",
	SystemMismatch:    "restart the machine, or load the kernel module of the library's version",
	Unknown:           "`dmesg | grep -i xid` may say why: Xid 79 means the card fell off the bus, 48 an error in its memory",
}

// HostAlloc is the call that reserves page-locked memory on the host.
const HostAlloc = "cuMemHostAlloc"

// Text says which call failed and how, but not what to do about it.
func (e *Error) Text() string {
	meaning := e.Code.Meaning()
	if e.Call == HostAlloc && e.Code == OutOfMemory {
		meaning = "the host has too little memory that may be page-locked"
	}
	return fmt.Sprintf("%s: %s (CUDA error %d)", e.Call, meaning, e.Code)
}

// ExitCode is the exit code of a command that ends with the error: 6 if the device was lost, 3 if there is
// too little memory, or 1.
func (e *Error) ExitCode() int {
	switch {
	case e.Code.Sticky():
		return 6
	case e.Code == OutOfMemory:
		return 3
	}
	return 1
}

func (e *Error) Error() string {
	help := e.Code.Help()
	if e.Call == HostAlloc && e.Code == OutOfMemory {
		help = "see `free -m`, `ulimit -l` and the limit of the control group; a smaller training.micro_batch needs less"
	}
	text := e.Text() + ": " + help
	if e.Log != "" {
		text += "\n" + e.Log
	}
	return text
}

// TooOld says that a driver lacks functions that snug calls.
type TooOld struct {
	CUDA int // the version that it supports, as in [Driver.Version]; 0: unknown
}

// Needed is the CUDA version from which drivers have every function that snug calls.
const Needed = 11040

func (e *TooOld) Error() string {
	has := "is too old"
	if e.CUDA != 0 {
		has = fmt.Sprintf("supports CUDA %d.%d, which is too old", e.CUDA/1000, e.CUDA%1000/10)
	}
	return fmt.Sprintf("the NVIDIA driver %s: CUDA %d.%d is needed, which came with driver 470; update the driver, or compute on the CPU (hardware.device: cpu)", has, Needed/1000, Needed%1000/10)
}

// Meaning says what a code means.
func (c Code) Meaning() string {
	if m := meanings[c]; m != "" {
		return m
	}
	return "the driver failed"
}

// Help says what to do about a code.
func (c Code) Help() string {
	if h := helps[c]; h != "" {
		return h
	}
	return report
}

// Codes lists the codes that are explained.
func Codes() []Code { return slices.Sorted(maps.Keys(meanings)) }

// Sticky reports whether the context is lost after the error, so that every later call fails too.
func (c Code) Sticky() bool {
	switch c {
	case ECCUncorrectable, NVLinkBroken, Contained, MPSTerminated, Unknown:
		return true
	}
	return c >= 700 && c < 800 && c != TooManyResources
}
