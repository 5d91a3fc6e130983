//go:build unix

package durable

import (
	"errors"
	"os"
)

// SyncDir makes the names in a directory durable: those that were added, and that others are gone.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
