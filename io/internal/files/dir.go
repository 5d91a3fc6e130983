package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/millstream/millstream/internal/durable"
)

// makeDir makes dir and its missing parents, and makes the names that it adds durable.
func makeDir(dir string) error {
	dir = filepath.Clean(dir)
	err := os.Mkdir(dir, 0o777)
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeDir(filepath.Dir(dir)); err != nil {
			return err
		}
		err = os.Mkdir(dir, 0o777)
	}
	if errors.Is(err, fs.ErrExist) {
		info, err := os.Stat(dir)
		if err == nil && !info.IsDir() {
			err = fmt.Errorf("%s is a file, and a directory is needed", dir)
		}
		return err
	}
	if err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(dir))
}
