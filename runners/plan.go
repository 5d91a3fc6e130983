package runners

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/plan"
	"github.com/millstream/millstream/statebackend"
)

// planForm is the value of --plan: json, text or mermaid; "" does not print it.
type planForm string

// Set implements flag.Value. --plan without a value is "true".
func (f *planForm) Set(s string) error {
	switch s {
	case "true":
		s = "json"
	case "false":
		s = ""
	case "json", "text", "mermaid":
	default:
		return errors.New("must be json, text or mermaid")
	}
	*f = planForm(s)
	return nil
}

func (f *planForm) String() string { return string(*f) }

// IsBoolFlag lets --plan stand alone.
func (f *planForm) IsBoolFlag() bool { return true }

// showPlan prints the plan, or compares it with a saved one, and returns the exit code.
func showPlan(w io.Writer, name string, build func(*sdk.Pipeline) error, form planForm, saved string) (int, error) {
	if form != "" && saved != "" {
		return exitUsage, errors.New("--plan prints the plan and --plan-diff compares it: give one of them")
	}
	g, err := sdk.Build(name, build)
	if err != nil {
		return exitFailed, err
	}
	if form == "text" {
		_, err := io.WriteString(w, g.Plan())
		return exitOf(err), err
	}
	p, err := plan.Of(g, statebackend.DefaultKeyGroups)
	if err != nil {
		return exitFailed, err
	}
	if saved == "" {
		var out []byte
		if form == "json" {
			out, err = plan.Marshal(p)
		} else {
			var picture string
			picture, err = plan.Mermaid(p)
			out = []byte(picture)
		}
		if err == nil {
			_, err = w.Write(out)
		}
		return exitOf(err), err
	}
	data, err := os.ReadFile(saved)
	if err != nil {
		return exitUsage, fmt.Errorf("--plan-diff: %w; save a plan with the program that ran: --plan > %s", err, saved)
	}
	old, err := plan.Unmarshal(data)
	if err != nil {
		return exitUsage, fmt.Errorf("--plan-diff=%s: %w; save a plan with the program that ran: --plan > %[1]s", saved, err)
	}
	changes, err := plan.Diff(old, p)
	if err != nil {
		return exitFailed, err
	}
	if _, err := io.WriteString(w, changes.String()); err != nil {
		return exitFailed, err
	}
	if len(changes.Obstacles) > 0 {
		return exitRefused, nil
	}
	return exitOK, nil
}

func exitOf(err error) int {
	if err != nil {
		return exitFailed
	}
	return exitOK
}
