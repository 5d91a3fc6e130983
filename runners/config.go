package runners

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

// Config is every setting of the runners. NewConfig has the defaults, RegisterFlags makes flags of it, and
// each flag has an environment variable: --state-cache is MILLSTREAM_STATE_CACHE.
type Config struct {
	Runner      string // direct or distributed
	Parallelism int    // subtasks of each step

	Workers     int    // worker processes
	Role        string // local, coordinator or worker
	Coordinator string // host:port, of a worker
	Listen      string // host:port of the coordinator or of a worker's data port

	StateBackend string // memory, filesystem or rocksdb
	StateCache   Bytes  // for a worker process, divided among its stateful subtasks

	CheckpointDir      string
	CheckpointInterval time.Duration
	CheckpointMode     string // aligned, unaligned or auto
	AlignmentTimeout   time.Duration
	RetainCheckpoints  int
	MaxRetries         int
	WatermarkInterval  time.Duration

	Restore     string // none, latest or a path
	NewRun      bool
	AllowReplay bool

	HTTP      string
	TokenFile string
	TLSCert   string
	TLSKey    string
	TLSCA     string
}

// Bytes is a size. As a flag it is written 64KiB, 256MiB, 1GB or a number.
type Bytes int64

// Set implements flag.Value.
func (b *Bytes) Set(s string) error {
	n, err := humanize.ParseBytes(s)
	if err != nil || n > 1<<62 {
		return fmt.Errorf("%q is no size: write it like 64KiB or 256MiB", s)
	}
	*b = Bytes(n)
	return nil
}

func (b *Bytes) String() string { return strings.ReplaceAll(humanize.IBytes(uint64(*b)), " ", "") }

// NewConfig returns the defaults.
func NewConfig() *Config {
	return &Config{
		Runner: "direct", Parallelism: runtime.GOMAXPROCS(0), Workers: 1, Role: "local",
		StateBackend: "memory", StateCache: 256 << 20,
		CheckpointInterval: 10 * time.Second, CheckpointMode: "aligned", AlignmentTimeout: time.Second,
		RetainCheckpoints: 10, MaxRetries: 3, WatermarkInterval: 50 * time.Millisecond, Restore: "none",
	}
}

// flagGroups are the flags in the order and the groups in which help shows them.
var flagGroups = []struct {
	title string
	names []string
}{
	{"Runner", []string{"runner", "parallelism", "watermark-interval"}},
	{"Processes (distributed)", []string{"role", "workers", "coordinator", "listen", "max-retries"}},
	{"State", []string{"state-backend", "state-cache"}},
	{"Checkpoints", []string{"checkpoint-dir", "checkpoint-interval", "checkpoint-mode", "alignment-timeout", "retain-checkpoints", "restore", "new-run", "allow-replay"}},
	{"Access", []string{"http", "token-file", "tls-cert", "tls-key", "tls-ca"}},
	{information, []string{"version", "print-config", "plan", "plan-diff"}},
}

// information is the group of flags that print something instead of running a job.
const information = "Information"

// RegisterFlags puts the settings on fs, with their present values as defaults.
func (c *Config) RegisterFlags(fs *flag.FlagSet) {
	fs.StringVar(&c.Runner, "runner", c.Runner, "`direct`: run in this process; distributed: as a coordinator and workers")
	fs.IntVar(&c.Parallelism, "parallelism", c.Parallelism, "`subtasks` of each step")
	fs.DurationVar(&c.WatermarkInterval, "watermark-interval", c.WatermarkInterval, "least `time` between two watermarks of a source, unless it has read 262,144 records")
	fs.StringVar(&c.Role, "role", c.Role, "`local`: coordinator here, workers as child processes; coordinator; worker. Implies --runner=distributed")
	fs.IntVar(&c.Workers, "workers", c.Workers, "worker `processes`")
	fs.StringVar(&c.Coordinator, "coordinator", c.Coordinator, "`host:port` of the coordinator, for --role=worker")
	fs.StringVar(&c.Listen, "listen", c.Listen, "`host:port` to listen on (default: a free port on loopback)")
	fs.IntVar(&c.MaxRetries, "max-retries", c.MaxRetries, "`times` that the same failure of a step is tried again from the last checkpoint: N retries are N+1 attempts; lost workers do not count")
	fs.StringVar(&c.StateBackend, "state-backend", c.StateBackend, "`memory`; filesystem: memory with durable checkpoints; rocksdb")
	fs.Var(&c.StateCache, "state-cache", "`bytes` of state that a worker process keeps in memory as values")
	fs.StringVar(&c.CheckpointDir, "checkpoint-dir", c.CheckpointDir, "`URL` of durable checkpoints: file:///directory or s3://bucket/prefix")
	fs.DurationVar(&c.CheckpointInterval, "checkpoint-interval", c.CheckpointInterval, "`time` between two checkpoints, at which output is committed; by default a bounded direct run has only the one at its end")
	fs.StringVar(&c.CheckpointMode, "checkpoint-mode", c.CheckpointMode, "`aligned`; unaligned: barriers overtake elements; auto: they do after --alignment-timeout")
	fs.DurationVar(&c.AlignmentTimeout, "alignment-timeout", c.AlignmentTimeout, "`time` after which barriers overtake, with --checkpoint-mode=auto")
	fs.IntVar(&c.RetainCheckpoints, "retain-checkpoints", c.RetainCheckpoints, "completed `checkpoints` to keep")
	fs.StringVar(&c.Restore, "restore", c.Restore, "`none`; latest: go on from the newest checkpoint; or the path of one")
	fs.BoolVar(&c.NewRun, "new-run", c.NewRun, "begin anew in a checkpoint directory that was used")
	fs.BoolVar(&c.AllowReplay, "allow-replay", c.AllowReplay, "restore a checkpoint that is not the newest, or whose successors were deleted: later output will appear twice")
	fs.StringVar(&c.HTTP, "http", c.HTTP, "`host:port` of the status API (default: off)")
	fs.StringVar(&c.TokenFile, "token-file", c.TokenFile, "`file` with the secret that all processes share; needed beyond loopback")
	fs.StringVar(&c.TLSCert, "tls-cert", c.TLSCert, "`file` with the certificate of this process")
	fs.StringVar(&c.TLSKey, "tls-key", c.TLSKey, "`file` with its key")
	fs.StringVar(&c.TLSCA, "tls-ca", c.TLSCA, "`file` with the authorities that others' certificates must come from")
}

const envPrefix = "MILLSTREAM_"

// envName is the environment variable of a runner flag.
func envName(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// runnerFlag says whether a flag is one of the runners'.
func runnerFlag(name string) bool {
	for _, g := range flagGroups {
		for _, n := range g.names {
			if n == name {
				return true
			}
		}
	}
	return false
}

// applyEnv sets the runner flags that have an environment variable. It comes before the arguments are
// parsed, which win.
func applyEnv(fs *flag.FlagSet) error {
	var err error
	fs.VisitAll(func(f *flag.Flag) {
		v, ok := os.LookupEnv(envName(f.Name))
		if !ok || !runnerFlag(f.Name) || err != nil {
			return
		}
		if serr := fs.Set(f.Name, v); serr != nil {
			err = fmt.Errorf("%s=%q: %w", envName(f.Name), v, wanted(f, serr))
		}
	})
	return err
}

// imply sets what follows from the flags that were given: a role is one of the distributed runner.
func (c *Config) imply(given map[string]bool) {
	if given["role"] && !given["runner"] {
		c.Runner = "distributed"
	}
}

// given are the names of the flags that arguments or the environment have set.
func given(fs *flag.FlagSet) map[string]bool {
	names := map[string]bool{}
	fs.Visit(func(f *flag.Flag) { names[f.Name] = true })
	return names
}

// distributedOnly are the flags that mean nothing to the direct runner, with a reason where there is one.
var distributedOnly = []struct{ name, why string }{
	{"role", ""}, {"workers", ""}, {"coordinator", ""}, {"listen", ""}, {"max-retries", ": the direct runner does not try again"},
	{"checkpoint-dir", ": the direct runner keeps checkpoints in memory"}, {"restore", ": the direct runner keeps checkpoints in memory"},
	{"new-run", ""}, {"allow-replay", ""}, {"retain-checkpoints", ""}, {"alignment-timeout", ""},
	{"http", ": of a direct run, progress and the table at the end are all there is"},
	{"token-file", ""}, {"tls-cert", ""}, {"tls-key", ""}, {"tls-ca", ""},
}

// validateDirect refuses settings that a direct run would ignore, and a backend that the program has not.
func (c *Config) validateDirect(fs *flag.FlagSet, l linked) error {
	given := given(fs)
	for _, only := range distributedOnly {
		if f := fs.Lookup(only.name); given[f.Name] && (f.Name == "role" || f.Value.String() != f.DefValue) {
			return fmt.Errorf("--%s=%s needs --runner=distributed%s", f.Name, f.Value, only.why)
		}
	}
	switch {
	case c.StateBackend == "filesystem":
		return errors.New("--state-backend=filesystem needs --runner=distributed: it is memory with durable checkpoints")
	case c.CheckpointMode == "auto":
		return errors.New("--checkpoint-mode=auto needs --runner=distributed: a direct run takes aligned or unaligned")
	case l.backends[c.StateBackend] == nil:
		return fmt.Errorf("--state-backend=%s is not part of this program: pass runners.WithBackend(%[1]s.Driver{…}) to Main, and build with -tags %[1]s", c.StateBackend)
	}
	return nil
}

// validate refuses values that no runner takes.
func (c *Config) validate() error {
	oneOf := func(flag, v string, of ...string) error {
		for _, o := range of {
			if v == o {
				return nil
			}
		}
		return fmt.Errorf("--%s=%s: must be one of %s", flag, v, strings.Join(of, ", "))
	}
	for _, err := range []error{
		oneOf("runner", c.Runner, "direct", "distributed"),
		oneOf("role", c.Role, "local", "coordinator", "worker"),
		oneOf("state-backend", c.StateBackend, "memory", "filesystem", "rocksdb"),
		oneOf("checkpoint-mode", c.CheckpointMode, "aligned", "unaligned", "auto"),
	} {
		if err != nil {
			return err
		}
	}
	for _, d := range []struct {
		flag string
		d    time.Duration
	}{
		{"checkpoint-interval", c.CheckpointInterval}, {"alignment-timeout", c.AlignmentTimeout}, {"watermark-interval", c.WatermarkInterval},
	} {
		if d.d < 0 || d.d%time.Millisecond != 0 {
			return fmt.Errorf("--%s=%v: must not be negative, and whole milliseconds", d.flag, d.d)
		}
	}
	switch {
	case c.Parallelism < 1:
		return fmt.Errorf("--parallelism=%d: must be at least 1", c.Parallelism)
	case c.Workers < 1:
		return fmt.Errorf("--workers=%d: must be at least 1", c.Workers)
	case c.CheckpointInterval <= 0:
		return fmt.Errorf("--checkpoint-interval=%v: must be above 0", c.CheckpointInterval)
	case c.RetainCheckpoints < 1:
		return fmt.Errorf("--retain-checkpoints=%d: must be at least 1", c.RetainCheckpoints)
	case c.MaxRetries < 0:
		return fmt.Errorf("--max-retries=%d: must be at least 0", c.MaxRetries)
	case c.StateCache < 1:
		return fmt.Errorf("--state-cache: must be above 0")
	case c.Role == "worker" && c.Coordinator == "":
		return fmt.Errorf("--role=worker needs --coordinator=host:port")
	}
	return nil
}
