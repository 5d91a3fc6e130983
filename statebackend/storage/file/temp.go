package file

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// createTemp makes a temporary file and locks it for as long as it is open. The kernel drops the lock
// when its process dies, however it dies: that is how sweep knows which files nobody will finish.
func createTemp(dir string) (*os.File, error) {
	for {
		f, err := os.CreateTemp(dir, "put-*")
		if err != nil {
			return nil, err
		}
		if err := lock(f); err == nil || errors.Is(err, errors.ErrUnsupported) {
			// A sweep may have come between the two steps and removed the name.
			if _, err := os.Lstat(f.Name()); err == nil {
				return f, nil
			}
		} else if !errors.Is(err, errLocked) {
			f.Close()
			os.Remove(f.Name())
			return nil, err
		}
		f.Close()
	}
}

// sweep removes the temporary files that no living process writes, here or elsewhere. Where
// files cannot be locked, it leaves them all.
func sweep(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := removeIfDead(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func removeIfDead(name string) error {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := lock(f); errors.Is(err, errLocked) || errors.Is(err, errors.ErrUnsupported) {
		return nil
	} else if err != nil {
		return err
	}
	return os.Remove(name)
}

// errLocked says that a living process holds the lock.
var errLocked = errors.New("file is locked")
