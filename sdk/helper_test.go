package sdk_test

import (
	"context"

	"github.com/millstream/millstream/runners/direct"
	"github.com/millstream/millstream/sdk"
)

// run runs a pipeline that is expected to fail.
func run(build func(p *sdk.Pipeline) error) error {
	_, err := direct.Run(context.Background(), "p", build, direct.Options{Parallelism: 2})
	return err
}
