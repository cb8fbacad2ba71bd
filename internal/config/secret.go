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
	"sync"
	"unicode/utf8"
)

// mask is shown in place of a secret.
const mask = "***"

// A Secret is text that formatting, logging and encoding mask. Convert it to string to use it.
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

// plainPath matches text that can only be a path, if it is not too long: absolute, relative to a dot, or with the
// extension of a configuration or certificate; on one line, and without characters of Base64, a URL or a connection
// string. A limit in the expression would repeat the tables of Unicode that often.
var plainPath = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^((\.{0,2}/|[A-Za-z]:\\|\.{1,2}\\)[\pL\pN _.,@~:/\\-]*|[\pL\pN_./\\-]+\.(ya?ml|pem|crt|cer|key))$`)
})

const longestPlainPath = 250 // characters

// shownPath returns path if it is certainly a path, or the path of an existing file. Otherwise it returns the mask: it
// may be a secret in place of its file's path.
func shownPath(path string) string {
	if utf8.RuneCountInString(path) > longestPlainPath || !plainPath().MatchString(path) {
		if _, err := os.Stat(path); err != nil {
			return mask
		}
	}
	return path
}

// fileReason returns why a file could not be read, with its path if that may be shown.
func fileReason(err error) string {
	failed, ok := errors.AsType[*fs.PathError](err)
	if !ok {
		return err.Error()
	}
	if path := shownPath(failed.Path); path != mask {
		return failed.Error()
	}
	return failed.Err.Error() + "; the value must be the path of a file, and is not shown because it may be a secret"
}

// loadSecret sets the secret at path from its file, if the key of the file overrides the key of the secret: the one
// from the later source does.
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
			return c.invalid(path+"_file", "set together with %s; set only one of them", path)
		}
	}
	c.files[path] = file
	content, err := c.readSecret(path)
	c.field(path).SetString(content)
	return err
}

// readSecret returns the current secret at path, from its file if it has one.
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

// currentSecret is readSecret for a running process.
func (c *Config) currentSecret(path string) (string, error) {
	secret, err := c.now().readSecret(path)
	return secret, later(err)
}

// later returns err without its type: while the process runs, a file that cannot be read is not a usage error, because
// it may be fixed without a restart.
func later(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(err.Error())
}
