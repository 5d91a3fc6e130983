// Package s3store stores objects in a bucket of S3, or of a server that speaks its protocol and knows
// conditional writes (If-None-Match), such as versitygw or MinIO.
//
// Credentials, region and endpoint come from where all AWS programs take them: the environment, the files
// in ~/.aws, or the machine's role. With an endpoint of one's own (AWS_ENDPOINT_URL_S3) buckets are
// addressed by path. Without a region, us-east-1 is used.
package s3store

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/millstream/millstream/statebackend/storage"
)

// Driver opens URLs of the form s3://bucket or s3://bucket/prefix. The bucket must exist.
var Driver storage.Driver = driver{}

// How long things may take. A request that fails for a passing reason is repeated within these.
const (
	maxAttempts     = 6
	maxBackoff      = 5 * time.Second
	headerTimeout   = 30 * time.Second // from the request's last byte to the answer's first
	callTimeout     = time.Minute      // of one call with its repetitions, without a large body
	transferTimeout = 5 * time.Minute  // of one part of an upload with its repetitions
	stallTimeout    = time.Minute      // of one read of a download
)

type driver struct{}

func (driver) Scheme() string { return "s3" }

func (driver) Open(ctx context.Context, u *url.URL) (storage.Bucket, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	b, err := connect(ctx, u)
	if err != nil {
		return nil, err
	}
	if err := b.probe(ctx); err != nil {
		return nil, err
	}
	return b, nil
}

// connect makes the client; it sends nothing to the bucket.
func connect(ctx context.Context, u *url.URL) (*bucket, error) {
	prefix := strings.Trim(u.Path, "/")
	if u.Host == "" || u.RawQuery != "" || u.Fragment != "" || prefix != "" && storage.CheckName(prefix) != nil {
		return nil, storage.Permanent(errors.New("it must look like s3://bucket or s3://bucket/prefix, with letters, digits, '.', '_' and '-' in the prefix"))
	}
	if prefix != "" {
		prefix += "/"
	}
	cfg, err := config.LoadDefaultConfig(ctx,
		config.WithRetryer(func() aws.Retryer {
			return retry.NewStandard(func(o *retry.StandardOptions) { o.MaxAttempts, o.MaxBackoff = maxAttempts, maxBackoff })
		}),
		config.WithHTTPClient(awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
			t.ResponseHeaderTimeout = headerTimeout
			t.MaxIdleConnsPerHost = 2 * partsAtOnce
		})),
	)
	if err != nil {
		return nil, fmt.Errorf("read the AWS configuration: %w", err)
	}
	if cfg.Region == "" {
		cfg.Region = "us-east-1"
	}
	if _, err := cfg.Credentials.Retrieve(ctx); err != nil {
		return nil, storage.Permanent(fmt.Errorf("no AWS credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or give the machine a role: %w", err))
	}
	b := &bucket{name: u.Host, prefix: prefix, endpoint: "AWS region " + cfg.Region}
	b.client = s3.NewFromConfig(cfg, func(o *s3.Options) {
		if o.BaseEndpoint != nil {
			o.UsePathStyle = true
			b.endpoint = *o.BaseEndpoint
		}
	})
	return b, nil
}

// A bucket is the part of an S3 bucket whose keys begin with prefix, which is "" or ends in '/'.
type bucket struct {
	client   *s3.Client
	name     string
	prefix   string
	endpoint string // for errors
}

var _ storage.Bucket = (*bucket)(nil)

func (b *bucket) key(name string) *string { return aws.String(b.prefix + name) }

// probe finds out at the start what would else go wrong later, or, if the server took If-None-Match for
// decoration, what would let two coordinators lead. Its object has a name that no object of ours can have.
func (b *bucket) probe(ctx context.Context) error {
	// First with little patience, for whoever has mistyped the endpoint and waits.
	_, err := b.client.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: &b.name, Prefix: &b.prefix, MaxKeys: aws.Int32(1)},
		func(o *s3.Options) { o.RetryMaxAttempts = 2 })
	if err != nil {
		return b.explain(err)
	}
	name := ".probe-" + rand.Text()
	if err := b.Create(ctx, name, []byte("1")); err != nil {
		return err
	}
	again := b.Create(ctx, name, []byte("2"))
	if err := b.Delete(ctx, name); err != nil {
		return err
	}
	if again == nil {
		return storage.Permanent(fmt.Errorf("the server at %s overwrites objects in spite of If-None-Match, which fencing relies on; use another, or a newer, server", b.endpoint))
	}
	if !errors.Is(again, storage.ErrExist) {
		return again
	}
	return nil
}

func (b *bucket) Put(ctx context.Context, ref storage.Ref, body io.ReaderAt) error {
	if ref.Size > partSize {
		return b.explain(b.upload(ctx, ref, body))
	}
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	_, err := b.client.PutObject(ctx, &s3.PutObjectInput{
		Bucket: &b.name, Key: b.key(ref.Name),
		Body: io.NewSectionReader(body, 0, ref.Size), ContentLength: &ref.Size,
		ChecksumCRC32C: checksum(ref.CRC32C), // the server refuses other bytes
	})
	return b.explain(err)
}

func (b *bucket) Create(ctx context.Context, name string, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	_, err := b.client.PutObject(ctx, &s3.PutObjectInput{
		Bucket: &b.name, Key: b.key(name), Body: bytes.NewReader(body), IfNoneMatch: aws.String("*"),
		ChecksumAlgorithm: types.ChecksumAlgorithmCrc32c,
	})
	return b.explain(err)
}

func (b *bucket) Get(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	d := &download{bucket: b, name: name, offset: offset}
	d.ctx, d.cancel = context.WithCancelCause(ctx)
	d.stall = time.AfterFunc(callTimeout, func() { d.cancel(errStalled) })
	in := &s3.GetObjectInput{}
	if length < 0 {
		in.ChecksumMode = types.ChecksumModeEnabled
	} else {
		in.Range = aws.String(fmt.Sprintf("bytes=%d-%d", offset, offset+length-1))
	}
	if err := d.open(in); err != nil {
		d.cancel(nil)
		return nil, err
	}
	return d, nil
}

func (b *bucket) List(ctx context.Context, prefix, startAfter string, limit int) ([]string, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	in := &s3.ListObjectsV2Input{Bucket: &b.name, Prefix: b.key(prefix), MaxKeys: aws.Int32(int32(min(limit, 1000)))}
	if startAfter != "" {
		in.StartAfter = b.key(startAfter)
	}
	for {
		out, err := b.client.ListObjectsV2(ctx, in)
		if err != nil {
			return nil, false, b.explain(err)
		}
		var names []string
		for _, o := range out.Contents {
			// Others may have put keys here that are no names of ours, such as "directory/".
			if name := strings.TrimPrefix(aws.ToString(o.Key), b.prefix); storage.CheckName(name) == nil {
				names = append(names, name)
			}
		}
		more := aws.ToBool(out.IsTruncated)
		if len(names) > 0 || !more {
			return names, more, nil
		}
		in.ContinuationToken = out.NextContinuationToken
	}
}

func (b *bucket) Delete(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := b.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &b.name, Key: b.key(name)})
	if err = b.explain(err); errors.Is(err, storage.ErrNotExist) {
		return nil
	}
	return err
}
