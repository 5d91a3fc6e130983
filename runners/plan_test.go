package runners

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millstream/millstream/io/jsonlio"
	"github.com/millstream/millstream/sdk"
)

// versions is a program whose flags name its steps or break it, and checks that it never runs.
func versions(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	fs := flag.NewFlagSet("words", flag.ContinueOnError)
	step := fs.String("step", "long", "`name` of a step")
	sink := fs.String("sink", "write", "`name` of the sink")
	fs.String("password", "", "a `secret`")
	broken := fs.Bool("broken", false, "make a mistake")
	ran := filepath.Join(t.TempDir(), "out")
	build := func(p *sdk.Pipeline) error {
		words := sdk.Filter(*step, sdk.Create("words", p, "to", "be"), func(s string) bool { return s != "" })
		jsonlio.Write(*sink, words, ran)
		if *broken {
			return errors.New("a mistake")
		}
		return nil
	}
	var o, e bytes.Buffer
	code = run("words", build, linked{}, fs, args, &o, &e)
	if _, err := os.Stat(ran); !os.IsNotExist(err) {
		t.Errorf("%q ran the job", args)
	}
	return code, o.String(), e.String()
}

func TestPlanIsPrintedWithoutARun(t *testing.T) {
	for _, c := range []struct{ flag, begins string }{
		{"--plan", "{\n  \"components\""},
		{"--plan=json", "{\n  \"components\""},
		{"--plan=text", "plan 1 \"words\"\nstep \"words\" read"},
		{"--plan=mermaid", "flowchart TD\n    s0[/\"words"},
	} {
		code, out, stderr := versions(t, c.flag, "--password=hunter2")
		if code != exitOK || !strings.HasPrefix(out, c.begins) || stderr != "" {
			t.Errorf("%s: code %d, %q, %q", c.flag, code, out, stderr)
		}
		if strings.Contains(out, "hunter2") || strings.Contains(out, "password") {
			t.Errorf("%s has a flag of the program: %s", c.flag, out)
		}
	}
	if code, out, stderr := versions(t, "--plan", "--broken"); code != exitFailed || out != "" || !strings.Contains(stderr, "a mistake") {
		t.Errorf("a mistake of the pipeline: code %d, %q, %q", code, out, stderr)
	}
}

func TestPlanDiffTellsWhetherARestoreIsPossible(t *testing.T) {
	_, saved, _ := versions(t, "--plan")
	path := filepath.Join(t.TempDir(), "plan.json")
	if err := os.WriteFile(path, []byte(saved), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"--step=long", exitOK, "steps of \"words\": no change"},
		{"--step=longer", exitOK, `"longer": looks like "long", renamed`},
		{"--sink=put", exitRefused, `the state of "write" would be dropped`},
		{"--broken", exitFailed, ""},
	} {
		if code, out, stderr := versions(t, "--plan-diff="+path, c.args); code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("%s: code %d, %q, %q", c.args, code, out, stderr)
		}
	}
}

func TestPlanDiffNamesAFileThatIsNoPlan(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct{ name, text, want string }{
		{"missing", "", "no such file"},
		{"corrupt", "{\"components\":", "decode plan"},
		{"foreign", "{}", "not the plan of a Millstream program"},
	} {
		path := filepath.Join(dir, c.name)
		if c.text != "" {
			if err := os.WriteFile(path, []byte(c.text), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		code, out, stderr := versions(t, "--plan-diff="+path)
		if code != exitUsage || out != "" || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: code %d, %q, %q", c.name, code, out, stderr)
		}
		for _, want := range []string{path, c.want, "--plan >"} {
			if !strings.Contains(stderr, want) {
				t.Errorf("%s: no %q in %q", c.name, want, stderr)
			}
		}
	}
}

func TestPlanFlagsAreChecked(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--plan=pdf", "must be json, text or mermaid"},
		{"--plan --plan-diff=x", "give one of them"},
	} {
		code, _, stderr := versions(t, strings.Fields(c.args)...)
		if code != exitUsage || !strings.Contains(stderr, c.want) {
			t.Errorf("%s: code %d, %q", c.args, code, stderr)
		}
	}
	if code, out, _ := versions(t, "--help"); code != exitOK || !strings.Contains(out, "--plan-diff=file") || !strings.Contains(out, "5  --plan-diff") || strings.Contains(out, "MILLSTREAM_PLAN") {
		t.Errorf("code %d: %s", code, out)
	}
}
