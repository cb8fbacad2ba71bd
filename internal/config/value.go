package config

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// want says in words what k takes.
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
	case text, secret:
		if k.rule != "" {
			return k.rule
		}
	}
	return "text"
}

// parse turns the text of one scalar, variable or flag into a value of k's Go type. Its
// error says what was found and what is allowed, and shows no secret.
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
		items := strings.Split(s, ",")
		for i := range items {
			items[i] = strings.TrimSpace(items[i])
		}
		return items, k.matchAll(items)
	case section, placements, rules:
	}
	return nil, errors.New("cannot be given as text")
}

// match reports a text that k's pattern does not allow.
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

// wrong is the error for the value s of k, which is no secret. What looks like a URL with a
// password, a connection string or a key in the wrong place is not shown either.
func (k key) wrong(s string) error {
	switch {
	case strings.ContainsAny(s, "@?\n"), strings.Contains(s, "=") && !strings.Contains(k.rule, "="):
		s = mask
	case len(s) > 80:
		s = s[:80] + "…"
	}
	return fmt.Errorf("found %q; allowed is %s", s, k.want())
}

// fields are the keys of one item of placements or rules.
func (k key) fields() []string {
	if k.kind == rules {
		return []string{"match", "replace"}
	}
	return []string{"column", "to", "as"}
}
