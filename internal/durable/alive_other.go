//go:build !unix

package durable

// alive cannot be told here; nothing is swept.
func alive(int) bool { return true }
