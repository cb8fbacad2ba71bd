package redisstreams

import (
	"fmt"
	"unicode"
)

// maxNameLength is the maximum length of the key of a stream in bytes, far below what Redis allows.
const maxNameLength = 1024

// Names are the rules for keys of streams. Redis allows any bytes; these are names that people can type.
type Names struct{}

// Illegal returns why a stream of this name cannot be written, or "" if it can.
func (Names) Illegal(name string) string {
	if name == "" {
		return "is empty"
	}
	if len(name) > maxNameLength {
		return fmt.Sprintf("has %d bytes, at most %d are allowed", len(name), maxNameLength)
	}
	for _, r := range name {
		if r == unicode.ReplacementChar || unicode.IsControl(r) {
			return "contains a control character, or is not UTF-8"
		}
	}
	return ""
}
