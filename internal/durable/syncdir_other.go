//go:build !unix

package durable

import (
	"os"
)

// SyncDir does nothing: folders cannot be synced here.
func SyncDir(string) error { return nil }

// SyncIn does nothing either.
func SyncIn(*os.Root, string) error { return nil }
