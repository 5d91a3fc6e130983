package memory_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/statebackend"
	"github.com/millstream/millstream/statebackend/memory"
)

// A subtask counts words in windows, fires and drops one, and is restored from a snapshot.
func Example() {
	ctx, own := context.Background(), statebackend.AllKeyGroups(statebackend.DefaultKeyGroups)
	backend, err := memory.Driver{}.Open(ctx, statebackend.Config{KeyGroups: own})
	check(err)

	var batch statebackend.Batch
	put := func(end eventtime.Time, word, count string) {
		group := statebackend.KeyGroupFor([]byte(word), statebackend.DefaultKeyGroups)
		batch.Put(statebackend.AppendWindowKey(nil, 0, end-60, end, group, []byte(word)), []byte(count))
	}
	put(60, "river", "1")
	put(60, "wheel", "2")
	put(120, "wheel", "3")
	check(backend.Write(&batch))

	snapshot, err := backend.Snapshot()
	check(err)

	// The Watermark is 60: the first window is due.
	due := statebackend.WindowsUntil(0, 60)
	print(backend, due)
	batch.Reset()
	batch.DeleteRange(due)
	check(backend.Write(&batch))
	fmt.Println("left:")
	print(backend, statebackend.WindowedTable(0))

	// The snapshot still has what was dropped.
	store := objects{}
	handle, err := snapshot.Persist(ctx, store)
	check(err)
	check(snapshot.Release())
	check(backend.Close())
	restored, err := memory.Driver{}.Open(ctx, statebackend.Config{
		KeyGroups: own, Restore: []statebackend.Restore{{Handle: handle, Fetcher: store}},
	})
	check(err)
	fmt.Println("restored:")
	print(restored, statebackend.WindowedTable(0))
	// Output:
	// 60 river 1
	// 60 wheel 2
	// left:
	// 120 wheel 3
	// restored:
	// 60 river 1
	// 60 wheel 2
	// 120 wheel 3
}

func print(b statebackend.Backend, r statebackend.Range) {
	check(b.Scan(r, func(key, value []byte) (bool, error) {
		k, _ := statebackend.ParseWindowKey(key)
		fmt.Println(int64(k.End), string(k.Key), string(value))
		return true, nil
	}))
}

// objects stands for durable storage.
type objects map[string][]byte

func (o objects) Known(string) (statebackend.Ref, bool) { return statebackend.Ref{}, false }

func (o objects) Upload(_ context.Context, name string, content io.ReaderAt, size int64) (statebackend.Ref, error) {
	o[name] = make([]byte, size)
	_, err := io.ReadFull(io.NewSectionReader(content, 0, size), o[name])
	return statebackend.Ref{Object: name, Size: size, CRC32C: statebackend.Checksum(0, o[name])}, err
}

func (o objects) Fetch(_ context.Context, ref statebackend.Ref) (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(o[ref.Object])), nil
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
