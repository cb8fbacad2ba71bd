package config

import (
	"fmt"
	"regexp"
	"strings"
)

// placeholder is how a file refers to an environment variable; with another $ in front it stands
// for itself.
var placeholder = regexp.MustCompile(`\$?\$\{([A-Za-z_][A-Za-z0-9_]*)\}`)

// fill puts variables in the place of placeholders. A variable that is unset or empty is an
// error, which names it. Where k has none, ${…} is the key's own.
func (r *reader) fill(k key, value string) (string, error) {
	if k.kind != secret && k.kind != conninfo && !k.expands {
		return value, nil
	}
	var missing []string
	filled := placeholder.ReplaceAllStringFunc(value, func(match string) string {
		if strings.HasPrefix(match, "$$") {
			return match[1:]
		}
		name := placeholder.FindStringSubmatch(match)[1]
		content := r.variable(name)
		if content == "" {
			missing = append(missing, name)
		}
		if k.kind == conninfo && match != value {
			return escapeParam(value, content)
		}
		return content
	})
	if len(missing) > 0 {
		return "", fmt.Errorf("refers to ${%s}: this environment variable is not set", strings.Join(missing, "}, ${"))
	}
	return filled, nil
}

// variable returns a variable of the environment that is read; empty: unset.
func (r *reader) variable(name string) string {
	for _, v := range r.variables {
		if content, ok := strings.CutPrefix(v, name+"="); ok {
			return content
		}
	}
	return ""
}

// escapeParam writes content as a part of the connection string dsn in dsn's form, so that it
// means itself whatever it contains. Among keywords a value with blanks has to stand in quotes.
func escapeParam(dsn, content string) string {
	if !isURL(dsn) {
		return strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(content)
	}
	var out strings.Builder
	for _, c := range []byte(content) {
		if c == '-' || c == '_' || '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' {
			out.WriteByte(c)
		} else {
			fmt.Fprintf(&out, "%%%02X", c)
		}
	}
	return out.String()
}
