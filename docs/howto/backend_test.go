package howto_test

import (
	"testing"

	"github.com/millstream/millstream/runners"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/statebackend/memory"
	"github.com/millstream/millstream/testing/backendtest"
)

type myDriver = memory.Driver // yours is a type of your own

func TestMyBackend(t *testing.T) { backendtest.Run(t, myDriver{}) }

func build(*sdk.Pipeline) error { return nil }

var _ = mainWithMyBackend

func mainWithMyBackend() { runners.Main("clicks", build, runners.WithBackend(myDriver{})) }
