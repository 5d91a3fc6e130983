//go:build unix && !solaris && !aix

package file

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// lock takes the file's advisory lock, without waiting. The lock belongs to the open file, not to the
// process, so that it also keeps apart two stores in one process.
func lock(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EWOULDBLOCK):
			return errLocked
		case errors.Is(err, syscall.ENOLCK):
			return errors.ErrUnsupported // a network file system without a lock server
		case err != nil:
			return fmt.Errorf("lock %s: %w", f.Name(), err)
		}
		return nil
	}
}

// remedy says what the user can do about an error of the file system, or nothing.
func remedy(err error) string {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return ""
	}
	switch errno {
	case syscall.ENOSPC:
		return "free some space, or retain fewer checkpoints"
	case syscall.EDQUOT:
		return "raise the quota, or retain fewer checkpoints"
	case syscall.EACCES:
		return "the user of this process needs permission to read, write and search the directory"
	case syscall.EPERM:
		return "the user of this process needs permission, and the file system must know hard links"
	case syscall.EROFS:
		return "mount the file system writable, or choose another directory"
	case syscall.ENOTDIR:
		return "a part of the path is a file; choose another directory"
	case syscall.EXDEV:
		return "all that is below the store's directory must be on one file system"
	}
	return ""
}
