package config

import (
	"fmt"
	"io"
	"log/slog"
)

// mask stands for a secret wherever one is shown.
const mask = "***"

// A Secret is text that no formatting, logging or encoding shows. Convert it to string where
// it is used.
type Secret string

// String returns the mask.
func (Secret) String() string { return mask }

// GoString returns the mask.
func (Secret) GoString() string { return mask }

// Format writes the mask for every verb.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, mask) }

// MarshalText returns the mask, for JSON and YAML too.
func (Secret) MarshalText() ([]byte, error) { return []byte(mask), nil }

// LogValue returns the mask.
func (Secret) LogValue() slog.Value { return slog.StringValue(mask) }
