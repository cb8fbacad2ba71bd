package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A problem is one thing wrong with a configuration.
type problem struct {
	where string // file:line, variable or flag; empty: the key is missing
	key   string // path of the key; empty: the problem is that of the whole source
	text  string // the value and the allowed values, without secrets
}

// String returns "where: key: text", with the key once if a flag names it already.
func (p problem) String() string {
	key := p.key
	if strings.HasSuffix(p.where, "--set "+key) {
		key = ""
	}
	parts := slices.DeleteFunc([]string{p.where, key, p.text}, func(s string) bool { return s == "" })
	return strings.Join(parts, ": ")
}

// An Error lists the problems of a configuration. The process should exit with the code for usage errors.
type Error struct{ problems []problem }

// Error returns the only problem, or the number of problems and one line for each.
func (e *Error) Error() string {
	if len(e.problems) == 1 {
		return e.problems[0].String()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d problems with the configuration", len(e.problems))
	for _, p := range e.problems {
		b.WriteString("\n  " + p.String())
	}
	return b.String()
}

// join returns the problems of errs as one error, or nil if there are none.
func join(errs ...error) error {
	var all Error
	for _, err := range errs {
		if e, ok := errors.AsType[*Error](err); ok {
			all.problems = append(all.problems, e.problems...)
		} else if err != nil {
			all.problems = append(all.problems, problem{text: err.Error()})
		}
	}
	if len(all.problems) == 0 {
		return nil
	}
	return &all
}

// invalid returns an error about the value of a key.
func (c *Config) invalid(path, format string, args ...any) error {
	where := c.settings[path].where
	if where == "" { // the content of a secret comes from a file
		where = c.settings[path+"_file"].where
	}
	return &Error{problems: []problem{{where: where, key: path, text: fmt.Sprintf(format, args...)}}}
}

// withoutEffect returns an error about the first key of section that is set, although it has no effect. It ignores keys
// with a default.
func (c *Config) withoutEffect(section, why string) error {
	for _, k := range keys {
		if strings.HasPrefix(k.path, section) && k.def == nil && c.isSet(k.path) {
			return c.invalid(k.path, "has no effect: %s", why)
		}
	}
	return nil
}

// missing returns the error about a required key without a value.
func missing(path string) error {
	k, _ := keyAt(path)
	flag := "--set " + path + "=…"
	if k.flag != "" {
		flag = "--" + k.flag
	}
	return &Error{problems: []problem{{key: path, text: fmt.Sprintf("required; set it in the file, as %s or with %s", k.env(), flag)}}}
}

// Nearest returns the candidate that is probably meant by got, or "" if none
// is near. A path is also near if only its last part is: publication for source.publication, source.name for name.
func Nearest(got string, candidates []string) string {
	best := slices.MinFunc(append([]string{""}, candidates...), func(a, b string) int {
		return cmp.Compare(distance(got, a), distance(got, b))
	})
	if distance(got, best) > max(2, len(got)/4) {
		return ""
	}
	return best
}

// KeyOfFlag returns the key that an unknown flag was meant for: dead_letter_topic for dead-letter-topic, and the only key with that last
// part for topic. It returns "" if there is none.
func KeyOfFlag(flag string) string {
	name := strings.ReplaceAll(flag, "-", "_")
	var ends []string
	for _, k := range keys {
		switch {
		case len(childrenOf(k.path)) > 0:
		case k.path == name:
			return name
		case strings.HasSuffix(k.path, "."+name):
			ends = append(ends, k.path)
		}
	}
	if len(ends) == 1 {
		return ends[0]
	}
	return ""
}

// Misspelled returns the candidate of which got is probably a misspelling, or "". A misspelling has few other letters, or
// lacks one of the parts between dots.
func Misspelled(got string, candidates []string) string {
	wrong := func(candidate string) int {
		parts := strings.Split(candidate, ".")
		for i := range parts {
			if strings.Join(slices.Concat(parts[:i], parts[i+1:]), ".") == got {
				return 1
			}
		}
		return editDistance(got, candidate)
	}
	best := slices.MinFunc(append([]string{""}, candidates...), func(a, b string) int { return cmp.Compare(wrong(a), wrong(b)) })
	if wrong(best) > max(2, len(got)/8) {
		return ""
	}
	return best
}

func distance(got, candidate string) int {
	lastPart := func(path string) string { return path[strings.LastIndexByte(path, '.')+1:] }
	return min(editDistance(got, candidate), 1+editDistance(lastPart(got), lastPart(candidate)))
}

// editDistance returns the minimum number of insertions, deletions, substitutions and swaps of adjacent bytes that
// turn a into b (optimal string alignment).
func editDistance(a, b string) int {
	before, prev, cur := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := range len(a) {
		cur[0] = i + 1
		for j := range len(b) {
			substitute := prev[j]
			if a[i] != b[j] {
				substitute++
			}
			cur[j+1] = min(prev[j+1]+1, cur[j]+1, substitute)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				cur[j+1] = min(cur[j+1], before[j-1]+1)
			}
		}
		before, prev, cur = prev, cur, before
	}
	return prev[len(b)]
}
