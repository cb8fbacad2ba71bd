package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"regexp"
	"strings"
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

// plainPath matches what can only be a path: absolute, relative to a dot, or with the ending of a configuration or
// certificate; on one line, and with nothing of what makes Base64, a URL or a connection string.
var plainPath = regexp.MustCompile(`^((\.{0,2}/|[A-Za-z]:\\|\.{1,2}\\)[\pL\pN _.,@~:/\\-]{0,250}|[\pL\pN_./\\-]{1,240}\.(ya?ml|pem|crt|cer|key))$`)

// shownPath returns path if it is plainly one, or that of a file that exists, and otherwise the mask: it may be a
// secret that somebody has put where the path of its file belongs.
func shownPath(path string) string {
	if !plainPath.MatchString(path) {
		if _, err := os.Stat(path); err != nil {
			return mask
		}
	}
	return path
}

// fileReason says why a file could not be read, with its path only if that may be shown.
func fileReason(err error) string {
	failed, ok := errors.AsType[*fs.PathError](err)
	if !ok {
		return err.Error()
	}
	if path := shownPath(failed.Path); path != mask {
		return failed.Error()
	}
	return failed.Err.Error() + "; a file is meant by its path, which is not shown here as it may be a secret itself"
}

// loadSecret sets the secret at path from its file, if the file is in force: of the two keys
// the one given in the later source is.
func (c *Config) loadSecret(path string) error {
	file := c.field(path + "_file").String()
	if file == "" {
		return nil
	}
	if !c.field(path).IsZero() {
		here, there := c.settings[path], c.settings[path+"_file"]
		switch {
		case here.source > there.source:
			return nil
		case here.source == there.source:
			return c.invalid(path+"_file", "given together with %s; one of them is allowed", path)
		}
	}
	c.files[path] = file
	content, err := c.readSecret(path)
	c.field(path).SetString(content)
	return err
}

// readSecret returns the secret at path as it is now: what its file holds, if it comes from
// one.
func (c *Config) readSecret(path string) (string, error) {
	file := c.files[path]
	if file == "" {
		return c.field(path).String(), nil
	}
	data, err := os.ReadFile(file) //nolint:gosec // which file is the operator's choice
	if err != nil {
		return "", c.invalid(path+"_file", "%s", fileReason(err))
	}
	content := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	if content == "" {
		return "", c.invalid(path+"_file", "%s is empty", file)
	}
	return content, nil
}

// currentSecret is readSecret while the process runs.
func (c *Config) currentSecret(path string) (string, error) {
	secret, err := c.now().readSecret(path)
	return secret, later(err)
}

// later is what is wrong with a file while the process runs: no mistake in the configuration,
// which somebody would have to correct before another start.
func later(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(err.Error())
}
