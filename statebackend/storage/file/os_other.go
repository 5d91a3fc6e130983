//go:build !unix || solaris || aix

package file

import (
	"errors"
	"os"
)

// lock is not available here, so temporary files of dead processes stay until somebody removes them.
func lock(*os.File) error { return errors.ErrUnsupported }

// syncDir does nothing: these systems do not sync a directory by opening it.
func syncDir(string) error { return nil }

func remedy(error) string { return "" }
