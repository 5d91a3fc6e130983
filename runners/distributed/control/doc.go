// Package control is what coordinator and workers say to each other, generated from control.proto, and how
// they prove that they may.
package control

// Version is that of the protocol. Both sides must have the same.
const Version = 2

const (
	// MaxMessage bounds a message, in bytes. The largest are deployments: a manifest is in them.
	MaxMessage = 128 << 20
	// ChunkBytes is the size of a chunk of an object.
	ChunkBytes = 256 << 10
)

//go:generate ../../../scripts/generate-control.sh
