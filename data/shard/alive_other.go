//go:build !unix

package shard

// alive cannot be told here; nothing is swept.
func alive(int) bool { return true }
