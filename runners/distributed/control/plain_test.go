package control

import (
	"errors"
	"io"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestPlainErrorsHaveNoWordsOfTheProtocol(t *testing.T) {
	own := errors.New("the worker was silent")
	for _, c := range []struct {
		err  error
		want string
	}{
		{status.Error(codes.Canceled, "context canceled"), "connection lost"},
		{status.Error(codes.Unavailable, "transport is closing"), "connection lost"},
		{status.Error(codes.Unavailable, `connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:1: connect: connection refused"`),
			"transport: Error while dialing: dial tcp 127.0.0.1:1: connect: connection refused"},
		{status.Error(codes.DeadlineExceeded, "the worker took too long"), "the worker took too long"},
		{io.EOF, "EOF"},
		{own, "the worker was silent"},
	} {
		if got := Plain(c.err); got.Error() != c.want {
			t.Errorf("%v: %v, want %s", c.err, got, c.want)
		}
	}
	if Plain(own) != own || Plain(nil) != nil {
		t.Error("an error that is not of gRPC was changed")
	}
}
