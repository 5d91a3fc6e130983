// Package failpoint lets a test make a running program fail at a named place.
//
//	MILLSTREAM_FAILPOINTS=after-prepare=kill@3,mid-commit=error
//
// kills the process when it comes to `after-prepare` for the third time, and makes every pass through
// `mid-commit` an error. With MILLSTREAM_FAILPOINTS_ONCE naming a directory, each place fires once for all
// processes that share it. Without the variables a place costs one load of an atomic.
package failpoint

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

type point struct {
	action string // kill or error
	at     int64  // the pass at which it fires; 0: at every one
	passes atomic.Int64
}

var (
	armed  atomic.Bool
	mu     sync.Mutex
	points map[string]*point
	once   string // directory of marks, or ""
)

func init() {
	spec := os.Getenv("MILLSTREAM_FAILPOINTS")
	if spec == "" {
		return
	}
	if err := Arm(spec, os.Getenv("MILLSTREAM_FAILPOINTS_ONCE")); err != nil {
		fmt.Fprintf(os.Stderr, "MILLSTREAM_FAILPOINTS: %v\n", err)
		os.Exit(2)
	}
}

// ErrInjected is the error of a place that was told to fail.
var ErrInjected = errors.New("injected by a failpoint")

// Arm sets what fires from now on; an empty spec disarms all. onceDir may be empty.
func Arm(spec, onceDir string) error {
	parsed := map[string]*point{}
	for _, s := range strings.Split(spec, ",") {
		if s == "" {
			continue
		}
		name, what, ok := strings.Cut(s, "=")
		action, at, counted := strings.Cut(what, "@")
		p := &point{action: action}
		if counted {
			n, err := strconv.ParseInt(at, 10, 64)
			if err != nil || n < 1 {
				return fmt.Errorf("%q: the pass must be a number from 1", s)
			}
			p.at = n
		}
		if !ok || name == "" || action != "kill" && action != "error" {
			return fmt.Errorf("%q: must look like name=kill@3 or name=error", s)
		}
		parsed[name] = p
	}
	mu.Lock()
	defer mu.Unlock()
	points, once = parsed, onceDir
	armed.Store(len(points) > 0)
	return nil
}

// Hit is a place that may be told to fail.
func Hit(name string) error {
	if !armed.Load() {
		return nil
	}
	return hit(name)
}

func hit(name string) error {
	mu.Lock()
	p, dir := points[name], once
	mu.Unlock()
	if p == nil {
		return nil
	}
	if n := p.passes.Add(1); p.at != 0 && n != p.at {
		return nil
	}
	if dir != "" {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_EXCL, 0o666)
		if errors.Is(err, os.ErrExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("failpoint %s: %w", name, err)
		}
		f.Close()
	}
	if p.action == "kill" {
		kill()
	}
	return fmt.Errorf("%s: %w", name, ErrInjected)
}

// kill ends the process as a crash does: no deferred call runs.
func kill() {
	if p, err := os.FindProcess(os.Getpid()); err == nil && p.Kill() == nil {
		select {} // the signal is on its way
	}
	os.Exit(137)
}
