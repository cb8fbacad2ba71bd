package check

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// WriteJSON writes the conditions as a JSON array.
func WriteJSON(w io.Writer, conditions []Condition) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(conditions)
}

// longestTitle is the maximum width of the column of titles.
const longestTitle = 40

// WriteText writes one line per condition, and below it the fix, group by group.
func WriteText(w io.Writer, conditions []Condition) error {
	var b strings.Builder
	width := 0
	for _, c := range conditions {
		width = max(width, min(len(c.Title()), longestTitle))
	}
	group := ""
	for _, c := range conditions {
		if c.Group != group && c.Group != Takeover {
			if group != "" {
				b.WriteByte('\n')
			}
			b.WriteString(c.Group + "\n")
		}
		group = c.Group
		fmt.Fprintf(&b, "%-7s  %-*s  %s\n", c.State, width, visible(c.Title()), visible(c.Found))
		if c.Fix != "" {
			fmt.Fprintf(&b, "%s→ %s\n", strings.Repeat(" ", len("warning")+2+width+2), visible(c.Fix))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// visible returns text with control characters escaped: names of tables and topics may contain any.
func visible(text string) string {
	if !strings.ContainsFunc(text, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return text
	}
	return strings.Trim(strconv.Quote(text), `"`)
}

// Title is the condition's name, and its object if it has one.
func (c Condition) Title() string {
	if c.Object == "" {
		return c.Name
	}
	return c.Name + " " + c.Object
}
