package runners

import (
	"errors"
	"flag"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// What package flag says of arguments that it does not take.
var (
	unknownFlag  = regexp.MustCompile(`^flag provided but not defined: -(.*)$`)
	invalidValue = regexp.MustCompile(`(?s)^invalid (?:boolean )?value (".*?[^\\]"|"") for (?:flag )?-(\S+): (.*)$`)
	missingValue = regexp.MustCompile(`^flag needs an argument: -(.*)$`)
)

// clearer says an error of fs.Parse as help writes flags, and what to write instead.
func clearer(fs *flag.FlagSet, err error) error {
	text := err.Error()
	if m := unknownFlag.FindStringSubmatch(text); m != nil {
		var all []string
		fs.VisitAll(func(f *flag.Flag) { all = append(all, f.Name) })
		meant := ""
		if near := closest(m[1], all); near != "" {
			meant = fmt.Sprintf(": did you mean --%s?", near)
		}
		return fmt.Errorf("there is no flag --%s%s; --help lists all flags", m[1], meant)
	}
	if m := missingValue.FindStringSubmatch(text); m != nil {
		return fmt.Errorf("--%s needs a value: --%[1]s=…", m[1])
	}
	if m := invalidValue.FindStringSubmatch(text); m != nil {
		if v, uerr := strconv.Unquote(m[1]); uerr == nil {
			return fmt.Errorf("--%s=%s: %w", m[2], v, wanted(fs.Lookup(m[2]), errors.New(m[3])))
		}
	}
	return fmt.Errorf("%w; --help lists all flags", err)
}

// wanted says what f takes, if err, of its Set, only says that the value is something else.
func wanted(f *flag.Flag, err error) error {
	if err.Error() != "parse error" {
		return err
	}
	if g, ok := f.Value.(flag.Getter); ok {
		switch g.Get().(type) {
		case time.Duration:
			return errors.New("must be a time such as 500ms, 5s or 10m")
		case int, int64:
			return errors.New("must be a whole number")
		case uint, uint64:
			return errors.New("must be a whole number, not below 0")
		case float64:
			return errors.New("must be a number")
		case bool:
			return errors.New("must be true or false")
		}
	}
	return err
}

// closest returns the name that s is most likely a slip of, or "".
func closest(s string, names []string) string {
	best, least := "", min(3, len(s)/2+1)
	for _, n := range names {
		if d := distance(s, n); d < least {
			best, least = n, d
		}
	}
	return best
}

// distance is the least number of bytes to insert, remove or replace that makes b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1) // of the part of a so far, to each beginning of b
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// misspelt returns a warning for each variable of env that is most likely a slip of a runner flag's.
func misspelt(env []string) (warnings []string) {
	var names []string
	for _, g := range flagGroups {
		for _, n := range g.names {
			names = append(names, strings.TrimPrefix(envName(n), envPrefix))
		}
	}
	for _, e := range env {
		variable, _, _ := strings.Cut(e, "=")
		name, ours := strings.CutPrefix(variable, envPrefix)
		if !ours || slices.Contains(names, name) {
			continue
		}
		if near := closest(name, names); near != "" {
			warnings = append(warnings, fmt.Sprintf("%s has no effect: did you mean %s%s?", variable, envPrefix, near))
		}
	}
	return warnings
}
