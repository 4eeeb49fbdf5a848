//go:build !amd64

package ptxsim

// useAssembly has nothing to take: there is assembly for amd64 only.
func useAssembly() {}
