package checkpoint

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/millstream/millstream/statebackend"
	"github.com/millstream/millstream/statebackend/storage"
)

// Durable is the Store of one attempt in durable storage. Its objects are named
//
//	shared/<generation>/<attempt>/<checkpoint>/<nonce>-<name>
//
// after the leader and the attempt that wrote them and the checkpoint that they were first written for. The
// nonce is random: a name is never used twice, so that nobody, late as he may be, overwrites what another
// checkpoint lists.
type Durable struct {
	store  *storage.Store
	prefix string
}

// NewDurable returns the Store of an attempt under the claim with that generation.
func NewDurable(store *storage.Store, generation uint64, attempt int64) *Durable {
	return &Durable{store, fmt.Sprintf("%s%d/%d/", sharedPrefix, generation, attempt)}
}

const sharedPrefix = "shared/"

// Put implements Store.
func (d *Durable) Put(ctx context.Context, checkpoint int64, name string, content io.ReaderAt, size int64) (statebackend.Ref, error) {
	object := fmt.Sprintf("%s%d/%s-%s", d.prefix, checkpoint, rand.Text(), plain(name))
	r, err := d.store.Put(ctx, object, content, size)
	return statebackend.Ref{Object: r.Name, Size: r.Size, CRC32C: r.CRC32C}, err
}

// Fetch implements Store.
func (d *Durable) Fetch(ctx context.Context, ref statebackend.Ref) (io.ReadCloser, error) {
	return d.store.Get(ctx, storage.Ref{Name: ref.Object, Size: ref.Size, CRC32C: ref.CRC32C})
}

// plain makes a name fit for a segment of an object's name; it is for people only.
func plain(name string) string {
	return strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '.' || r == '_' || r == '-' {
			return r
		}
		return '_'
	}, name[:min(len(name), 100)])
}

// uploaded says under which claim, and for which checkpoint, an object of a Durable was written.
func uploaded(object string) (generation uint64, checkpoint int64, ok bool) {
	rest, ok := strings.CutPrefix(object, sharedPrefix)
	parts := strings.Split(rest, "/")
	if !ok || len(parts) != 4 {
		return 0, 0, false
	}
	generation, err := strconv.ParseUint(parts[0], 10, 64)
	if err != nil {
		return 0, 0, false
	}
	checkpoint, err = strconv.ParseInt(parts[2], 10, 64)
	return generation, checkpoint, err == nil
}
