package config

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
)

// want describes the allowed values of k.
func (k key) want() string {
	switch k.kind {
	case section, placements, rules:
		return "a list of {" + strings.Join(k.fields(), ", ") + "}"
	case choice:
		return "one of " + strings.Join(k.allowed, ", ")
	case boolean:
		return "true or false"
	case integer:
		if k.max > 0 {
			return fmt.Sprintf("a whole number from %d to %d", k.min, k.max)
		}
		return "a whole number, at least " + strconv.Itoa(k.min)
	case duration:
		return "a duration above 0, such as 30s or 1m30s"
	case list:
		return "a list, each item " + k.rule
	case conninfo:
		return "a connection string"
	case text, secret, columns:
		if k.rule != "" {
			return k.rule
		}
	}
	return "text"
}

// parse converts the text of a scalar, variable or flag to k's Go type. The error has the value and the allowed values,
// but no secret.
func (k key) parse(s string) (any, error) {
	switch k.kind {
	case text:
		return s, k.match(s)
	case choice:
		if !slices.Contains(k.allowed, s) {
			return nil, k.wrong(s)
		}
		return s, nil
	case secret, conninfo:
		return Secret(s), nil
	case boolean:
		switch s {
		case "true":
			return true, nil
		case "false":
			return false, nil
		}
		return nil, k.wrong(s)
	case integer:
		n, err := strconv.Atoi(s)
		if err != nil || n < k.min || k.max > 0 && n > k.max {
			return nil, k.wrong(s)
		}
		return n, nil
	case duration:
		d, err := time.ParseDuration(s)
		if err != nil || d <= 0 {
			return nil, k.wrong(s)
		}
		return d, nil
	case list:
		items := splitList(s)
		return items, k.matchAll(items)
	case columns:
		return k.columns(splitList(s))
	case section, placements, rules:
	}
	return nil, errors.New("cannot be set as text")
}

// splitList returns the items of a list in a variable or flag, written with commas or as in the file: [a, b].
func splitList(s string) []string {
	var items []string
	if strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]") && yaml.Unmarshal([]byte(s), &items) == nil {
		return items
	}
	items = strings.Split(s, ",")
	for i := range items {
		items[i] = strings.TrimSpace(items[i])
	}
	return items
}

// columns returns the names of a column, of which a single one may be empty if k allows that.
func (k key) columns(names encode.ColumnNames) (encode.ColumnNames, error) {
	if len(names) == 1 && names[0] == "" {
		return nil, k.match("")
	}
	return k.columnList(names)
}

// columnList is columns for a list.
func (k key) columnList(names encode.ColumnNames) (encode.ColumnNames, error) {
	if len(names) == 0 || slices.Contains(names, "") {
		return nil, fmt.Errorf("found an empty name in a list; allowed is %s", k.want())
	}
	return names, k.matchAll(names)
}

// match returns an error if k's pattern does not allow s.
func (k key) match(s string) error {
	if k.pattern == "" || regexp.MustCompile(k.pattern).MatchString(s) {
		return nil
	}
	return k.wrong(s)
}

func (k key) matchAll(items []string) error {
	if len(items) == 0 {
		return fmt.Errorf("found an empty list; allowed is %s", k.want())
	}
	for _, item := range items {
		if err := k.match(item); err != nil {
			return err
		}
	}
	return nil
}

// wrong returns the error for the value s of k. It does not show a value that looks like a URL with a password, a
// connection string or a key, which may be a secret in the wrong place.
func (k key) wrong(s string) error {
	switch {
	case strings.ContainsAny(s, "@?\n"), strings.Contains(s, "=") && !strings.Contains(k.rule, "="):
		s = mask
	case len(s) > 80:
		s = s[:80] + "…"
	}
	return fmt.Errorf("found %q; allowed is %s", s, k.want())
}

// fields returns the keys of an item of placements or rules.
func (k key) fields() []string {
	if k.kind == rules {
		return []string{"match", "replace"}
	}
	return []string{"column", "to", "as"}
}
