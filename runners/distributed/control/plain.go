package control

import (
	"errors"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Plain is the error of a stream as people say it, without the words of gRPC. Other errors are as they were.
func Plain(err error) error {
	st, ok := status.FromError(err)
	if !ok || err == nil {
		return err
	}
	switch _, cause, found := strings.Cut(st.Message(), "desc = "); {
	case found: // why there is no connection
		return errors.New(strings.Trim(cause, `"`))
	case st.Code() == codes.Canceled || st.Code() == codes.Unavailable:
		return errors.New("connection lost")
	}
	return errors.New(st.Message())
}
