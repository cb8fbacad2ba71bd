package jetstream

import (
	"fmt"
	"strings"
)

const (
	// maxSubject is the maximum length of a subject. Servers accept lines of 4096 bytes by default, and close the
	// connection after a longer one.
	maxSubject = 2000

	inboxSubjects = "_INBOX."
)

// Names are the rules for subjects. A subject that begins with $ would be a command to the server.
type Names struct{}

// Illegal returns why records cannot be written to a subject, or "" if they can.
func (Names) Illegal(name string) string {
	switch {
	case name == "":
		return "is empty"
	case len(name) > maxSubject:
		return fmt.Sprintf("has %d bytes, at most %d are allowed", len(name), maxSubject)
	case strings.HasPrefix(name, "$"), strings.HasPrefix(name, inboxSubjects):
		return "begins with $ or _INBOX., which NATS reserves for itself"
	case name[0] == '.' || name[len(name)-1] == '.' || strings.Contains(name, ".."):
		return "has an empty word between its dots"
	}
	for i := range len(name) {
		switch c := name[i]; {
		case c == '*' || c == '>':
			return "contains a wildcard, * or >"
		case c <= ' ' || c == 0x7f:
			return fmt.Sprintf("contains %q", c)
		}
	}
	return ""
}
