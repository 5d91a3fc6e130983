package statebackend

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"strings"
)

// Handle is what a checkpoint remembers of a persisted Snapshot: plain data, enough to restore it in any process.
type Handle struct {
	// Driver is the name of the driver that wrote the files, and Version that of its file format.
	Driver  string
	Version int
	// KeyGroups are those that the subtask owned: no entry has another group.
	KeyGroups KeyGroupRange
	// Files are in the order in which the driver listed them, with distinct names.
	Files []File
}

// File is one file of a persisted Snapshot.
type File struct {
	// Name is the file's name in the driver's directory: no path.
	Name string
	// ID is the identity of the content: two files with one ID, of whatever job, are equal byte for byte. It is empty
	// for a file that is uploaded each time.
	ID  string
	Ref Ref
}

// Ref says where an object lies in durable storage and what it must contain.
type Ref struct {
	// Object names the bytes to the Fetcher; nobody else looks into it.
	Object string
	Size   int64
	// CRC32C is the Castagnoli checksum of the content.
	CRC32C uint32
}

// castagnoli is the polynomial of every checksum here; object stores check the same one.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum returns the CRC-32C of content continued from crc, which is 0 at the start.
func Checksum(crc uint32, content []byte) uint32 { return crc32.Update(crc, castagnoli, content) }

// Bounds of a decoded Handle: what is beyond them was not written by a driver.
const (
	maxStringBytes = 4 << 10
	maxFiles       = 1 << 20
)

const handleVersion = 1

// Append appends the encoding of h (docs/format/state-handle.md). It fails if DecodeHandle would.
func (h Handle) Append(dst []byte) ([]byte, error) {
	if err := h.Validate(); err != nil {
		return dst, err
	}
	dst = append(dst, handleVersion)
	dst = appendString(dst, h.Driver)
	dst = binary.AppendUvarint(dst, uint64(h.Version))
	dst = binary.BigEndian.AppendUint16(dst, uint16(h.KeyGroups.First))
	dst = binary.BigEndian.AppendUint16(dst, uint16(h.KeyGroups.End))
	dst = binary.AppendUvarint(dst, uint64(len(h.Files)))
	for _, f := range h.Files {
		dst = appendString(dst, f.Name)
		dst = appendString(dst, f.ID)
		dst = appendString(dst, f.Ref.Object)
		dst = binary.AppendUvarint(dst, uint64(f.Ref.Size))
		dst = binary.BigEndian.AppendUint32(dst, f.Ref.CRC32C)
	}
	return dst, nil
}

// DecodeHandle reads a Handle from the front of src and returns the bytes after it. Whatever it returns is valid.
func DecodeHandle(src []byte) (h Handle, rest []byte, err error) {
	d := decoder{src: src}
	if v := d.byte(); d.err == nil && v != handleVersion {
		return Handle{}, nil, fmt.Errorf("decode state handle: version %d, but this program reads %d", v, handleVersion)
	}
	h.Driver = d.string()
	h.Version = d.int(math.MaxInt32)
	h.KeyGroups.First = KeyGroup(d.uint16())
	h.KeyGroups.End = KeyGroup(d.uint16())
	for n := d.int(maxFiles); n > 0 && d.err == nil; n-- {
		f := File{Name: d.string(), ID: d.string()}
		f.Ref = Ref{Object: d.string(), Size: int64(d.int(math.MaxInt64)), CRC32C: d.uint32()}
		h.Files = append(h.Files, f)
	}
	if d.err == nil {
		d.err = h.Validate()
	}
	if d.err != nil {
		return Handle{}, nil, fmt.Errorf("decode state handle: %w", d.err)
	}
	return h, d.src, nil
}

// Validate checks what DecodeHandle promises: that every name is a plain file name, so that restoring writes nothing
// outside its directory, and that numbers are in range.
func (h Handle) Validate() error {
	if h.Driver == "" || len(h.Driver) > maxStringBytes {
		return fmt.Errorf("driver name of %d bytes", len(h.Driver))
	}
	if h.Version < 0 || h.Version > math.MaxInt32 {
		return fmt.Errorf("format version %d", h.Version)
	}
	if h.KeyGroups.First > h.KeyGroups.End || h.KeyGroups.End > MaxKeyGroups {
		return fmt.Errorf("key groups %v", h.KeyGroups)
	}
	if len(h.Files) > maxFiles {
		return fmt.Errorf("%d files, of at most %d", len(h.Files), maxFiles)
	}
	seen := make(map[string]bool, len(h.Files))
	for _, f := range h.Files {
		switch {
		case f.Name == "" || f.Name == "." || f.Name == ".." || len(f.Name) > 255 || strings.ContainsAny(f.Name, "/\\\x00"):
			return fmt.Errorf("%.300q is not a plain file name", f.Name)
		case seen[f.Name]:
			return fmt.Errorf("file %q is listed twice", f.Name)
		case len(f.ID) > maxStringBytes || len(f.Ref.Object) > maxStringBytes:
			return fmt.Errorf("file %q: an ID of %d bytes and an object name of %d, of at most %d", f.Name, len(f.ID), len(f.Ref.Object), maxStringBytes)
		case f.Ref.Size < 0:
			return fmt.Errorf("file %q: %d bytes", f.Name, f.Ref.Size)
		}
		seen[f.Name] = true
	}
	return nil
}

// CheckRestore is what every Open checks first: that the handles are of this driver and this format version, are
// valid, and do not overlap.
func (c Config) CheckRestore(driver string, version int) error {
	for i, r := range c.Restore {
		h := r.Handle
		if h.Driver != driver {
			return fmt.Errorf("restore state: it was written by backend %q and cannot be read by %q: restart with the backend of the checkpoint", h.Driver, driver)
		}
		if h.Version != version {
			return fmt.Errorf("restore state: format version %d of backend %q, but this program reads %d", h.Version, driver, version)
		}
		if err := h.Validate(); err != nil {
			return fmt.Errorf("restore state: handle: %w", err)
		}
		for _, earlier := range c.Restore[:i] {
			if earlier.Handle.KeyGroups.Overlaps(h.KeyGroups) {
				return fmt.Errorf("restore state: two handles overlap: key groups %v and %v", earlier.Handle.KeyGroups, h.KeyGroups)
			}
		}
	}
	return nil
}

// OpenFile opens the content of a file. Reading it to io.EOF proves that it has the size and checksum of its Ref: if
// not, an error that names the file comes before io.EOF.
func OpenFile(ctx context.Context, fetch Fetcher, f File) (io.ReadCloser, error) {
	body, err := fetch.Fetch(ctx, f.Ref)
	if err != nil {
		return nil, fmt.Errorf("read state file %s: %w", f.Name, err)
	}
	return &verifier{file: f, body: body, left: f.Ref.Size}, nil
}

type verifier struct {
	file File
	body io.ReadCloser
	left int64
	crc  uint32
}

func (v *verifier) Read(p []byte) (int, error) {
	n, err := v.body.Read(p)
	v.left -= int64(n)
	v.crc = Checksum(v.crc, p[:n])
	switch {
	case v.left < 0:
		return 0, v.failed("longer than its %d bytes", v.file.Ref.Size)
	case err == io.EOF && v.left > 0:
		return 0, v.failed("%d of its %d bytes are missing", v.left, v.file.Ref.Size)
	case err == io.EOF && v.crc != v.file.Ref.CRC32C:
		return 0, v.failed("CRC-32C is %08x, but %08x was written", v.crc, v.file.Ref.CRC32C)
	case err != nil && err != io.EOF:
		return n, v.failed("%w", err)
	}
	return n, err
}

func (v *verifier) failed(format string, args ...any) error {
	return fmt.Errorf("read state file %s (%s): %w", v.file.Name, v.file.Ref.Object, fmt.Errorf(format, args...))
}

func (v *verifier) Close() error { return v.body.Close() }

// errTooLong names an entry by the first bytes of its key.
func errTooLong(what string, key []byte, n, limit int) error {
	return fmt.Errorf("write state: %s %.32x… has %d bytes, of at most %d", what, key, n, limit)
}

// decoder reads fields until the first error, which sticks.
type decoder struct {
	src []byte
	err error
}

var errTruncated = errors.New("unexpected end")

func (d *decoder) take(n int) []byte {
	if d.err == nil && n > len(d.src) {
		d.err = errTruncated
	}
	if d.err != nil {
		return make([]byte, min(n, 8))
	}
	b := d.src[:n]
	d.src = d.src[n:]
	return b
}

func (d *decoder) byte() byte     { return d.take(1)[0] }
func (d *decoder) uint16() uint16 { return binary.BigEndian.Uint16(d.take(2)) }
func (d *decoder) uint32() uint32 { return binary.BigEndian.Uint32(d.take(4)) }

func (d *decoder) int(limit uint64) int {
	if d.err != nil {
		return 0
	}
	v, w := binary.Uvarint(d.src)
	switch {
	case w == 0:
		d.err = errTruncated
	case w < 0 || v > limit:
		d.err = fmt.Errorf("number over %d", limit)
	default:
		d.src = d.src[w:]
		return int(v)
	}
	return 0
}

func (d *decoder) string() string {
	n := d.int(maxStringBytes)
	if d.err == nil && n > len(d.src) {
		d.err = errTruncated
	}
	if d.err != nil {
		return ""
	}
	return string(d.take(n))
}

func appendString(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}
