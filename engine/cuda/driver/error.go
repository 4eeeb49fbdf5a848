package driver

import "fmt"

// Error is a failed call of the driver.
type Error struct {
	Call string // the function of the driver API
	Code Code
	// Log is what the assembler wrote, for Module loading.
	Log string
}

// Code is a CUresult.
type Code int32

// The codes that snug explains.
const (
	InvalidValue      Code = 1
	OutOfMemory       Code = 2
	NotInitialized    Code = 3
	NoDevice          Code = 100
	InvalidDevice     Code = 101
	InvalidContext    Code = 201
	NoBinaryForGPU    Code = 209
	ECCUncorrectable  Code = 214
	InvalidPTX        Code = 218
	JITNotFound       Code = 221
	UnsupportedPTX    Code = 222
	NotFound          Code = 500
	NotReady          Code = 600
	IllegalAddress    Code = 700
	TooManyResources  Code = 701
	LaunchTimeout     Code = 702
	MisalignedAddress Code = 716
	LaunchFailed      Code = 719
	SystemNotReady    Code = 802
	SystemMismatch    Code = 803
	NotPermitted      Code = 800
	Unknown           Code = 999
)

var meanings = map[Code]string{
	InvalidValue:      "an argument is out of range",
	OutOfMemory:       "the card has too little free memory",
	NotInitialized:    "the driver is not initialized",
	NoDevice:          "there is no NVIDIA card",
	InvalidDevice:     "there is no card of that number",
	InvalidContext:    "the context is not valid",
	NoBinaryForGPU:    "the code does not fit the card",
	ECCUncorrectable:  "the card's memory reported an error that it cannot correct",
	InvalidPTX:        "the assembler refused the code",
	JITNotFound:       "the driver's assembler, libnvidia-ptxjitcompiler, is not installed next to it",
	UnsupportedPTX:    "the driver is too old for the code",
	NotFound:          "the name was not found",
	NotReady:          "the work is not done",
	IllegalAddress:    "a kernel read or wrote outside its memory",
	TooManyResources:  "a kernel needs more registers or shared memory than the card has",
	LaunchTimeout:     "a kernel ran longer than the system allows",
	MisalignedAddress: "a kernel used an address that is not aligned",
	LaunchFailed:      "a kernel failed",
	NotPermitted:      "the system does not permit it",
	SystemNotReady:    "the system's services for the card do not run",
	SystemMismatch:    "the driver's kernel module and its library are of different versions: restart the machine",
	Unknown:           "the driver does not say why",
}

func (e *Error) Error() string {
	text := fmt.Sprintf("%s: %s (CUDA error %d)", e.Call, e.Code.Meaning(), e.Code)
	if e.Log != "" {
		text += "\n" + e.Log
	}
	return text
}

// Meaning says what a code stands for.
func (c Code) Meaning() string {
	if m := meanings[c]; m != "" {
		return m
	}
	return "the driver failed"
}

// Sticky reports whether the context is lost after the error: every later call
// fails too.
func (c Code) Sticky() bool {
	switch c {
	case ECCUncorrectable, IllegalAddress, LaunchTimeout, MisalignedAddress, LaunchFailed, Unknown:
		return true
	}
	return c >= 700 && c < 800 && c != TooManyResources
}
