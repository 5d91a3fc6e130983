//go:build unix

package distributed

import (
	"os/exec"
	"syscall"
)

// ownGroup keeps signals to our process group away from a child.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
