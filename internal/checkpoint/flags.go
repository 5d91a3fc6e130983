package checkpoint

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"maps"
	"slices"
)

// Flags are the program's own flags as a manifest keeps them: with digests in place of values, which may be secrets.
// The salt is random, so that equal values of two jobs cannot be told. It does not keep whoever can read the manifest
// from trying out likely values.
type Flags struct {
	Salt    []byte
	Digests []FlagDigest // by name
}

// FlagDigest is HMAC-SHA-256 of a flag's name, a zero byte and its value, with the salt as the key.
type FlagDigest struct {
	Name   string
	Digest [sha256.Size]byte
}

const saltSize = 16

// NewFlags digests flags, given as values by name, under a salt of their own.
func NewFlags(values map[string]string) Flags {
	f := Flags{Salt: make([]byte, saltSize)}
	rand.Read(f.Salt) // never fails
	for _, name := range slices.Sorted(maps.Keys(values)) {
		f.Digests = append(f.Digests, FlagDigest{name, f.digest(name, values[name])})
	}
	return f
}

func (f Flags) digest(name, value string) (d [sha256.Size]byte) {
	h := hmac.New(sha256.New, f.Salt)
	h.Write([]byte(name))
	h.Write([]byte{0})
	h.Write([]byte(value))
	h.Sum(d[:0])
	return d
}

// Differ returns the names of the flags that have other values now, that are new and that are gone, each sorted. There are
// none if f is zero: then nobody knows what they were.
func (f Flags) Differ(now map[string]string) (changed, added, gone []string) {
	if len(f.Salt) == 0 {
		return nil, nil, nil
	}
	was := map[string]bool{}
	for _, d := range f.Digests {
		was[d.Name] = true
		switch value, ok := now[d.Name]; {
		case !ok:
			gone = append(gone, d.Name)
		case f.digest(d.Name, value) != d.Digest:
			changed = append(changed, d.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if !was[name] {
			added = append(added, name)
		}
	}
	return changed, added, gone
}

func (d *decoder) flags() Flags {
	f := Flags{Salt: d.bytes()}
	for n := d.count(1 + sha256.Size); n > 0 && d.err == nil; n-- {
		digest := FlagDigest{Name: d.string()}
		if d.err == nil && len(d.src) < sha256.Size {
			d.err = errCutOff
		}
		if d.err == nil {
			d.src = d.src[copy(digest.Digest[:], d.src):]
		}
		f.Digests = append(f.Digests, digest)
	}
	return f
}
