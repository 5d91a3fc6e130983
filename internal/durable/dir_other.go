//go:build !unix

package durable

// SyncDir does nothing: these systems do not sync a directory by opening it.
func SyncDir(string) error { return nil }
