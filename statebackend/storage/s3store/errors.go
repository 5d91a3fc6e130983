package s3store

import (
	"context"
	"errors"
	"fmt"
	"net"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"

	"github.com/millstream/millstream/statebackend/storage"
)

// explain turns an error of the SDK into one of package storage: what has happened, where, whether trying
// again may help, and what the user can do.
func (b *bucket) explain(err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	code, status := code(err), 0
	var response *awshttp.ResponseError
	if errors.As(err, &response) {
		status = response.HTTPStatusCode()
	}
	permanent := func(format string, args ...any) error {
		return storage.Permanent(fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err))
	}
	switch code {
	case "PreconditionFailed":
		return storage.ErrExist
	case "NoSuchKey", "NotFound":
		return storage.ErrNotExist
	case "NoSuchBucket":
		return permanent("bucket %q does not exist at %s; create it, or correct the URL or AWS_ENDPOINT_URL_S3", b.name, b.endpoint)
	case "InvalidAccessKeyId", "XAdminUserNotFound", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "TokenRefreshRequired", "AuthFailure":
		return permanent("%s does not accept the credentials for bucket %q; check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE", b.endpoint, b.name)
	case "RequestTimeTooSkewed":
		return permanent("the clocks of this machine and of %s differ; set this machine's", b.endpoint)
	case "PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException":
		return permanent("bucket %q is in another region than %s; set AWS_REGION", b.name, b.endpoint)
	}
	var network *net.OpError
	switch {
	case status == 403:
		return permanent("%s denies access to bucket %q; the user needs s3:ListBucket, GetObject, PutObject, DeleteObject and AbortMultipartUpload", b.endpoint, b.name)
	case status == 409 && code != "ConditionalRequestConflict" && code != "OperationAborted", status == 400 && code != "RequestTimeout", status == 405, status == 416, status == 501:
		return permanent("%s refuses the request for bucket %q", b.endpoint, b.name)
	case errors.As(err, &network) && network.Op == "dial":
		return fmt.Errorf("cannot reach %s for bucket %q; is the server up, and AWS_ENDPOINT_URL_S3 right?: %w", b.endpoint, b.name, err)
	}
	return fmt.Errorf("%s, bucket %q: %w", b.endpoint, b.name, err)
}

// code is what the server calls the error, or "".
func code(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode()
	}
	return ""
}
