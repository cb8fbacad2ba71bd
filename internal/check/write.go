package check

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/internal/terminal"
)

// WriteJSON writes the conditions as a JSON array.
func WriteJSON(w io.Writer, conditions []Condition) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(conditions)
}

// A Layout says how [WriteText] writes conditions.
type Layout struct {
	Width int  // characters of a line; 0: lines are not wrapped
	All   bool // also the conditions that are met, one by one
}

// indent is the column in which titles begin.
const indent = len("warning  ")

// WriteText writes the conditions that fail, then the warnings, each with its fix, then the conditions that are met, and
// how many there are of each.
func WriteText(w io.Writer, conditions []Condition, layout Layout) error {
	var b strings.Builder
	count := make(map[State]int)
	for _, state := range []State{Failed, Doubt, Met} {
		for _, c := range conditions {
			if c.State != state {
				continue
			}
			if count[state]++; state != Met || layout.All {
				layout.write(&b, string(state), c.Title()+": "+c.Found)
				if c.Fix != "" {
					layout.write(&b, "", "→ "+c.Fix)
				}
			}
		}
	}
	if n := count[Met]; n > 0 && !layout.All {
		layout.write(&b, string(Met), terminal.Counted(n, "condition")+"; --all lists all")
	}
	fmt.Fprintf(&b, "\n%s: %d failed, %s, %d ok\n", terminal.Counted(len(conditions), "condition"), count[Failed], terminal.Counted(count[Doubt], "warning"), count[Met])
	_, err := io.WriteString(w, b.String())
	return err
}

// write writes text, wrapped, in the column after label.
func (l Layout) write(b *strings.Builder, label, text string) {
	lines := []string{visible(text)}
	if l.Width > 0 {
		lines = terminal.Wrap(lines[0], max(20, l.Width-indent))
	}
	for _, line := range lines {
		fmt.Fprintf(b, "%-*s%s\n", indent, label, line)
		label = ""
	}
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
