package storage

import (
	"fmt"
	"strings"
)

// Greatest lengths, in bytes: with a prefix from its URL, S3 takes 1024 for a whole key, and file systems
// take 255 for a segment.
const (
	maxNameLen    = 800
	maxSegmentLen = 200
)

// CheckName returns an error unless name is a valid object name: segments of ASCII letters, digits, '.',
// '_' and '-', joined by '/'. A segment is not empty and does not begin with '.', so "." and ".." are not
// names and drivers have names left for temporary files.
//
// One more rule cannot be seen from a name alone and is the caller's to keep: no name that was ever used
// is a directory of another. With "a/b" there is no "a", since file systems (and S3 servers on top of
// them) cannot hold both.
func CheckName(name string) error {
	if name == "" {
		return fmt.Errorf("object name is empty")
	}
	if strings.HasSuffix(name, "/") {
		return fmt.Errorf("object name %.100q ends in '/'", name)
	}
	return checkPrefix(name)
}

// checkPrefix returns an error unless prefix is empty or the beginning of a valid name.
func checkPrefix(prefix string) error {
	if len(prefix) > maxNameLen {
		return fmt.Errorf("object name %.100q… has %d bytes, at most %d are allowed", prefix, len(prefix), maxNameLen)
	}
	segment := 0 // bytes of the current one so far
	for i := range len(prefix) {
		switch c := prefix[i]; {
		case c == '/' && segment == 0:
			return fmt.Errorf("object name %.100q has an empty segment", prefix)
		case c == '/':
			segment = 0
			continue
		case c == '.' && segment == 0:
			return fmt.Errorf("object name %.100q has a segment that begins with '.'", prefix)
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
		default:
			return fmt.Errorf("object name %.100q holds %q; allowed are letters, digits, '.', '_', '-' and '/'", prefix, c)
		}
		if segment++; segment > maxSegmentLen {
			return fmt.Errorf("object name %.100q… has a segment of more than %d bytes", prefix, maxSegmentLen)
		}
	}
	return nil
}
