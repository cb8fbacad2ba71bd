package config

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/outbox-cdc/outbox-cdc/internal/terminal"
)

// Sources are the sources of a configuration.
type Sources struct {
	File    string    // path of a YAML file; empty: none
	Content []byte    // of File; nil: Load reads the file
	Environ []string  // NAME=value as in [os.Environ]; Load uses OUTBOX_CDC_ variables, and those that the file refers to
	Flags   []Setting // later ones override earlier ones
}

// Arguments returns the arguments with which another command has the same configuration in the same environment: -c with
// File, and --set for each of Flags. The value of a secret is "…". Commands need different roles: so source.dsn of Flags is left out, or
// without a File comes first, as --dsn, for those that have no other.
func (s Sources) Arguments() string {
	var all []string
	if s.File != "" {
		all = append(all, "-c "+shell(s.File))
	} else if slices.ContainsFunc(s.Flags, func(f Setting) bool { return f.Key == "source.dsn" }) {
		all = append(all, "--dsn …")
	}
	for _, f := range s.Flags {
		if f.Key == "source.dsn" {
			continue
		}
		value := f.Value
		if k, ok := keyAt(f.Key); !ok || k.kind == secret || k.kind == conninfo {
			value = "…"
		}
		all = append(all, "--set "+shell(f.Key+"="+value))
	}
	return strings.Join(all, " ")
}

// shell returns text as one word of a POSIX shell.
func shell(text string) string {
	if oneWord.MatchString(text) {
		return text
	}
	return terminal.ShellQuote(text)
}

var oneWord = regexp.MustCompile(`^[\w@%+=:,./…-]+$`)

// A Setting is one key given on the command line.
type Setting struct {
	Key, Value string // lists are separated by commas
	Flag       string // as the user wrote it, for errors: --slot
}

// Load reads all sources and returns the merged configuration. The error is an [*Error] with every problem. Keys that
// only some commands require are checked by the methods for these commands.
func Load(src Sources) (*Config, error) {
	r := newReader(src.Environ)
	if src.File != "" {
		data := src.Content
		if data == nil {
			var err error
			if data, err = os.ReadFile(src.File); err != nil {
				return nil, &Error{problems: []problem{{text: "read configuration: " + fileReason(err) + "; -c takes the path of an existing file"}}}
			}
		}
		r.file(src.File, data)
	}
	r.environ()
	r.flags(src.Flags)
	if len(r.problems) > 0 {
		return nil, &Error{problems: r.problems}
	}
	cfg := newConfig(r.settings)
	cfg.file, cfg.arguments, cfg.sections = src.File, src.Arguments(), r.sections
	cfg.setStore()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	cfg.reloading = cfg.remember()
	return cfg, nil
}

// newConfig returns a Config with the values of settings, which are valid.
func newConfig(settings map[string]setting) *Config {
	cfg := &Config{settings: settings, files: make(map[string]string)}
	cfg.findFields()
	for path, s := range settings {
		cfg.field(path).Set(reflect.ValueOf(s.value))
	}
	return cfg
}

// findFields makes field work for c.
func (c *Config) findFields() {
	c.fields = make(map[string]reflect.Value)
	for _, k := range c.declare() {
		if k.at != nil {
			c.fields[k.path] = reflect.ValueOf(k.at).Elem()
		}
	}
}

// field returns the field of c for the key at path.
func (c *Config) field(path string) reflect.Value { return c.fields[path] }

// A source is a kind of source of settings. Later ones override earlier ones.
type source int

const (
	fromDefault source = iota
	fromFile
	fromEnviron
	fromFlag
)

// A setting is the valid value of a key, of its kind's Go type.
type setting struct {
	value  any
	source source
	where  string // outbox-cdc.yaml:3, OUTBOX_CDC_SOURCE_SLOT, --slot; "default"
}

// A reader converts sources to settings and collects their problems.
type reader struct {
	settings  map[string]setting // by path
	sections  map[string]string  // where the file has a section, by path
	problems  []problem
	variables []string // NAME=value
}

// newReader returns a reader with the defaults.
func newReader(environ []string) *reader {
	r := &reader{settings: make(map[string]setting), sections: make(map[string]string), variables: environ}
	for _, k := range keys {
		if k.def != nil {
			r.settings[k.path] = setting{value: k.def, where: "default"}
		}
	}
	return r
}

func (r *reader) problem(where, path, format string, args ...any) {
	r.problems = append(r.problems, problem{where: where, key: path, text: fmt.Sprintf(format, args...)})
}

// environ reads the variables whose names begin with OUTBOX_CDC_. As in libpq, an empty variable counts as not set.
func (r *reader) environ() {
	byName := make(map[string]key)
	var names []string
	for _, k := range keys {
		if k.kind != section {
			byName[k.env()] = k
			names = append(names, k.env())
		}
	}
	for _, variable := range r.variables {
		name, value, _ := strings.Cut(variable, "=")
		if !strings.HasPrefix(name, envPrefix) || value == "" {
			continue
		}
		if k, ok := byName[name]; ok {
			r.text(k, value, fromEnviron, name)
		} else if !serviceLink.MatchString(name) {
			r.problem(name, "", "unknown variable%s", hint(Nearest(name, names)))
		}
	}
}

// serviceLink matches the variables that Kubernetes sets in every pod for a Service whose name begins with outbox-cdc:
// https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables
var serviceLink = regexp.MustCompile(`^OUTBOX_CDC_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

func (r *reader) flags(flags []Setting) {
	for _, f := range flags {
		k, ok := keyAt(f.Key)
		switch {
		case !ok:
			r.problem(f.Flag, "", "unknown key%s", hint(Nearest(f.Key, paths())))
		case k.kind == section:
			r.problem(f.Flag, "", "is a section; set one of its keys: %s", strings.Join(childrenOf(f.Key), ", "))
		default:
			r.text(k, f.Value, fromFlag, f.Flag)
		}
	}
}

// text sets k to the value of a variable or flag.
func (r *reader) text(k key, text string, from source, where string) {
	parse := k.parse
	if k.kind == placements || k.kind == rules {
		parse = func(string) (any, error) { return r.itemsFromText(k, text, where) }
	}
	value, err := parse(text)
	if err != nil {
		r.problem(where, k.path, "%v", err)
		return
	}
	r.settings[k.path] = setting{value, from, where}
}

// itemsFromText reads placements or rules from JSON, which is YAML.
func (r *reader) itemsFromText(k key, text, where string) (any, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil || len(doc.Content) != 1 {
		return nil, k.wrong(text)
	}
	f := fileReader{reader: r, name: where, noLines: true}
	return f.items(k, doc.Content[0])
}

func hint(meant string) string {
	if meant == "" {
		return ""
	}
	return "; did you mean " + meant + "?"
}
