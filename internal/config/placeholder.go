package config

import (
	"fmt"
	"regexp"
	"strings"
)

// placeholder matches a reference to an environment variable. A second $ in front escapes it.
var placeholder = regexp.MustCompile(`\$?\$\{([A-Za-z_][A-Za-z0-9_]*)\}`)

// fill replaces placeholders with environment variables. The error names variables that are not set or empty. In keys
// without placeholders, ${…} is ordinary text.
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
		return "", fmt.Errorf("refers to ${%s}, but this environment variable is not set", strings.Join(missing, "}, ${"))
	}
	return filled, nil
}

// variable returns an environment variable; empty: not set.
func (r *reader) variable(name string) string {
	for _, v := range r.variables {
		if content, ok := strings.CutPrefix(v, name+"="); ok {
			return content
		}
	}
	return ""
}

// escapeParam escapes content for its use in the connection string dsn, a URL or key=value pairs. In key=value pairs,
// the user must put a value with blanks in quotes.
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
