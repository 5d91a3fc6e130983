package s3store

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/millstream/millstream/statebackend/storage"
)

const (
	partSize    = 16 << 20 // bytes; larger objects are sent in parts
	maxParts    = 10_000   // of S3
	partsAtOnce = 4
)

// upload sends a large object in parts, some at once. The server puts them together only if the checksum
// of the whole is right. Parts are read where they lie in body, so none is held in memory.
func (b *bucket) upload(ctx context.Context, ref storage.Ref, body io.ReaderAt) (err error) {
	begun, err := within(ctx, func(ctx context.Context) (*s3.CreateMultipartUploadOutput, error) {
		return b.client.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{
			Bucket: &b.name, Key: b.key(ref.Name),
			ChecksumAlgorithm: types.ChecksumAlgorithmCrc32c, ChecksumType: types.ChecksumTypeFullObject,
		})
	})
	if err != nil {
		return err
	}
	defer func() {
		if err == nil {
			return
		}
		if aerr := b.abort(context.WithoutCancel(ctx), ref.Name, begun.UploadId); aerr != nil { // ctx may be what has ended
			err = fmt.Errorf("%w; moreover its parts could not be removed, so let a lifecycle rule of the bucket abort incomplete uploads: %w", err, aerr)
		}
	}()

	parts, err := b.sendParts(ctx, ref, body, begun.UploadId)
	if err != nil {
		return err
	}
	_, err = within(ctx, func(ctx context.Context) (*s3.CompleteMultipartUploadOutput, error) {
		return b.client.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
			Bucket: &b.name, Key: b.key(ref.Name), UploadId: begun.UploadId,
			MultipartUpload: &types.CompletedMultipartUpload{Parts: parts},
			ChecksumType:    types.ChecksumTypeFullObject, ChecksumCRC32C: checksum(ref.CRC32C), MpuObjectSize: &ref.Size,
		})
	})
	return err
}

// abort removes the parts of an upload: what is neither completed nor aborted is kept, and paid for, unseen.
// A part that was cancelled here may still be arriving there, and survive the abort; so S3 advises to look
// and repeat.
func (b *bucket) abort(ctx context.Context, name string, id *string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	for delay := 50 * time.Millisecond; ; delay *= 2 {
		_, err := b.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &b.name, Key: b.key(name), UploadId: id})
		if err != nil && code(err) != "NoSuchUpload" {
			return err
		}
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return ctx.Err()
		}
		_, err = b.client.ListParts(ctx, &s3.ListPartsInput{Bucket: &b.name, Key: b.key(name), UploadId: id})
		if code(err) == "NoSuchUpload" {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (b *bucket) sendParts(ctx context.Context, ref storage.Ref, body io.ReaderAt, id *string) ([]types.CompletedPart, error) {
	size := max(partSize, (ref.Size+maxParts-1)/maxParts)
	parts := make([]types.CompletedPart, (ref.Size+size-1)/size)
	ctx, cancel := context.WithCancelCause(ctx) // by the first part that fails
	defer cancel(nil)
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(partsAtOnce, len(parts)) {
		wg.Go(func() {
			for i := range next {
				begin := int64(i) * size
				n := min(size, ref.Size-begin)
				out, err := within(ctx, func(ctx context.Context) (*s3.UploadPartOutput, error) {
					return b.client.UploadPart(ctx, &s3.UploadPartInput{
						Bucket: &b.name, Key: b.key(ref.Name), UploadId: id, PartNumber: aws.Int32(int32(i + 1)),
						Body: io.NewSectionReader(body, begin, n), ContentLength: &n, ChecksumAlgorithm: types.ChecksumAlgorithmCrc32c,
					})
				})
				if err != nil {
					cancel(fmt.Errorf("send part %d of %d: %w", i+1, len(parts), err))
					continue
				}
				parts[i] = types.CompletedPart{PartNumber: aws.Int32(int32(i + 1)), ETag: out.ETag, ChecksumCRC32C: out.ChecksumCRC32C}
			}
		})
	}
	for i := range parts {
		if ctx.Err() != nil {
			break
		}
		next <- i
	}
	close(next)
	wg.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return parts, nil
}

// within bounds the time of one call of an upload.
func within[T any](ctx context.Context, call func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	return call(ctx)
}

// checksum is a CRC32C as S3 writes it.
func checksum(crc uint32) *string {
	return aws.String(base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc)))
}
