//go:build !unix

package durable

// SyncDir does nothing: folders cannot be synced here.
func SyncDir(string) error { return nil }
