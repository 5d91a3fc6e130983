//go:build unix

package files

import (
	"errors"
	"fmt"
	"syscall"
)

// explain adds to an error of the file system what the user can do about it.
func explain(err error) error {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return err
	}
	var remedy string
	switch errno {
	case syscall.ENOSPC:
		remedy = "free some space and restart from the last checkpoint"
	case syscall.EDQUOT, syscall.EFBIG:
		remedy = "raise the limit and restart from the last checkpoint"
	case syscall.EACCES:
		remedy = "the user of this process needs permission to read, write and search the directory"
	case syscall.EPERM, syscall.EOPNOTSUPP:
		remedy = "the user of this process needs permission, and the file system must know hard links"
	case syscall.EROFS:
		remedy = "mount the file system writable, or choose another directory"
	case syscall.ENOTDIR:
		remedy = "a part of the path is a file; choose another directory"
	default:
		return err
	}
	return fmt.Errorf("%w; %s", err, remedy)
}
