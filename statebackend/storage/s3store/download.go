package s3store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/millstream/millstream/statebackend/storage"
)

// A download reads one object, or a range of it. The SDK repeats requests, but not the reading of their
// answers, and restoring reads gigabytes: so a download that breaks goes on where it was, and one whose
// server falls silent ends. One goroutine reads it.
type download struct {
	bucket *bucket
	name   string
	ctx    context.Context // of all reads; ended by Close or a stall
	cancel context.CancelCauseFunc
	stall  *time.Timer

	body    io.ReadCloser
	etag    *string // of the object that is being read
	offset  int64   // of the next byte
	left    int64   // bytes still to come
	resumed int     // how often in a row without a byte
}

const maxResumes = 3

var errStalled = errors.New("the server sent nothing for a minute")

// open sends the request; the rest of in says which bytes are wanted.
func (d *download) open(in *s3.GetObjectInput) error {
	in.Bucket, in.Key = &d.bucket.name, d.bucket.key(d.name)
	d.stall.Reset(callTimeout)
	defer d.stall.Stop()
	out, err := d.bucket.client.GetObject(d.ctx, in)
	if err != nil {
		return d.bucket.explain(d.withCause(err))
	}
	d.body, d.etag, d.left = out.Body, out.ETag, aws.ToInt64(out.ContentLength)
	return nil
}

func (d *download) Read(p []byte) (int, error) {
	for {
		d.stall.Reset(stallTimeout)
		n, err := d.body.Read(p)
		d.stall.Stop()
		d.offset, d.left = d.offset+int64(n), d.left-int64(n)
		if n > 0 {
			d.resumed = 0
			if err != io.EOF {
				err = nil // if it is an error, the next read has it too
			}
			return n, err
		}
		if err == nil || err == io.EOF {
			return 0, err
		}
		if d.ctx.Err() != nil || d.left <= 0 || d.resumed == maxResumes {
			return 0, d.withCause(err)
		}
		d.resumed++
		d.body.Close() // it is broken; what Close says adds nothing
		err = d.open(&s3.GetObjectInput{
			Range:   aws.String(fmt.Sprintf("bytes=%d-%d", d.offset, d.offset+d.left-1)),
			IfMatch: d.etag,
		})
		if errors.Is(err, storage.ErrExist) { // the answer to IfMatch
			err = storage.Permanent(errors.New("the object was replaced while it was read"))
		}
		if err != nil {
			return 0, fmt.Errorf("go on reading at byte %d: %w", d.offset, err)
		}
	}
}

func (d *download) Close() error {
	d.cancel(nil) // first, so that Close does not read what is left
	return d.body.Close()
}

// withCause names the stall if that is what has ended the download.
func (d *download) withCause(err error) error {
	if cause := context.Cause(d.ctx); errors.Is(cause, errStalled) {
		return cause
	}
	return err
}
