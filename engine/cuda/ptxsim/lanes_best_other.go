//go:build !amd64

package ptxsim

// useAssembly does nothing, as there is assembly only for amd64.
func useAssembly() {}
