package kernel

import (
	"bytes"
	"context"
	"io"

	"github.com/millstream/millstream/statebackend"
	"github.com/millstream/millstream/statebackend/memory"
)

// kept is what a test keeps of the snapshots of tables that share a backend: the last base and the deltas since.
type kept struct {
	files  files
	base   *savedBase
	deltas [][]byte
}

// nothing says that there was no snapshot.
func (k *kept) nothing() bool { return k.base == nil && len(k.deltas) == 0 }

// keep takes a snapshot that is encoded. Unless complete is set, its base is not used, as if it had not been completed: the deltas must do.
func (k *kept) keep(s KeyedSnapshot, complete bool) error {
	k.deltas = append(k.deltas, joined(s.Delta()))
	if s.Base() == nil {
		return nil
	}
	handle, err := s.Base().Persist(context.Background(), k.files)
	if err == nil {
		err = s.Base().Release()
	}
	if err == nil && complete {
		k.base, k.deltas = &savedBase{handle, joined(s.Companion())}, nil
	}
	return err
}

// open returns a backend with what is kept.
func (k *kept) open() (statebackend.Backend, error) {
	c := statebackend.Config{KeyGroups: statebackend.AllKeyGroups(testGroups)}
	deltas := k.deltas
	if k.base != nil {
		c.Restore = []statebackend.Restore{{Handle: k.base.handle, Fetcher: k.files}}
		deltas = append([][]byte{k.base.companion}, deltas...)
	}
	b, err := memory.Driver{}.Open(context.Background(), c)
	if err != nil {
		return nil, err
	}
	for _, d := range deltas {
		var batch statebackend.Batch
		err := statebackend.ReadBatch(bytes.NewReader(d), batch.Add)
		if err == nil {
			err = b.Write(&batch)
		}
		if err != nil {
			return nil, err
		}
	}
	return b, nil
}

// joined is the encoding of a batch in pieces.
func joined(p *statebackend.Pieces) []byte {
	b, err := io.ReadAll(io.NewSectionReader(p, 0, p.Size()))
	if err != nil {
		panic(err)
	}
	return b
}
