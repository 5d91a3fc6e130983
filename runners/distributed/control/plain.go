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
	switch {
	case !ok || err == nil:
		return err
	case st.Code() == codes.Canceled:
		return errors.New("connection lost")
	}
	text := st.Message()
	if i := strings.LastIndex(text, "desc = "); i >= 0 { // an error of the connection within that of the call
		text = strings.Trim(text[i+len("desc = "):], `"`)
	}
	return errors.New(text)
}
