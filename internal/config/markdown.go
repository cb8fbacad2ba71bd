package config

import (
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// WriteMarkdown writes the reference table of all keys, as docs/configuration.md shows it.
func WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	b.WriteString("| key | default | meaning |\n|---|---|---|\n")
	for _, k := range keys {
		if k.kind == section {
			continue
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", k.path, k.markdownDefault(), strings.ReplaceAll(k.meaning(), "|", `\|`))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (k key) markdownDefault() string {
	if k.needed {
		return "*needed*"
	}
	if k.def == nil {
		return ""
	}
	out, _ := yaml.Marshal(k.encode(k.def)) // a literal of keys.go
	return "`" + strings.TrimSpace(string(out)) + "`"
}

// meaning returns the description with what is allowed.
func (k key) meaning() string {
	if k.kind == choice {
		return k.doc + " One of `" + strings.Join(k.allowed, "`, `") + "`."
	}
	return k.doc
}
