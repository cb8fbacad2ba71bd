package config

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Sources says where a configuration comes from.
type Sources struct {
	File    string    // path of a YAML file; empty: none
	Content []byte    // what File holds; nil: it is read
	Environ []string  // NAME=value as in [os.Environ]; OUTBOX_CDC_ variables are looked at, and those the file refers to
	Flags   []Setting // applied in this order
}

// A Setting is one key given on the command line.
type Setting struct {
	Key, Value string // lists are separated by commas
	Flag       string // how the user wrote it, for messages: --slot
}

// Load reads all sources and returns the merged configuration. Its error is an [*Error] with
// every problem found. What only some commands need is not required here but by the methods
// that need it.
func Load(src Sources) (*Config, error) {
	r := newReader()
	r.variables = src.Environ
	layers := [][]setting{r.defaults()}
	if src.File != "" {
		data := src.Content
		if data == nil {
			var err error
			if data, err = os.ReadFile(src.File); err != nil {
				return nil, &Error{Problems: []Problem{{Text: fmt.Sprintf("read configuration: %v", err)}}}
			}
		}
		layers = append(layers, r.file(src.File, data))
	}
	layers = append(layers, r.environ(src.Environ), r.flags(src.Flags))
	if err := r.err(); err != nil {
		return nil, err
	}
	cfg := merge(layers)
	if err := cfg.check(); err != nil {
		return nil, err
	}
	cfg.reloading = cfg.remember()
	return cfg, nil
}

// merge lays one layer over the other. Values have been checked by then.
func merge(layers [][]setting) *Config {
	cfg := &Config{settings: make(map[string]setting), files: make(map[string]string)}
	for i, layer := range layers {
		for _, s := range layer {
			s.layer = i
			cfg.settings[s.key.path] = s
		}
	}
	for path, s := range cfg.settings {
		cfg.field(path).Set(reflect.ValueOf(s.value))
	}
	return cfg
}

// field returns the field of c that holds the value of the key at path.
func (c *Config) field(path string) reflect.Value {
	v := reflect.ValueOf(c).Elem()
	for name := range strings.SplitSeq(strings.ReplaceAll(path, "_", ""), ".") {
		v = v.FieldByNameFunc(func(field string) bool { return strings.EqualFold(field, name) })
	}
	return v
}

// A setting is one key's value, checked and of the kind's Go type.
type setting struct {
	key   key
	value any
	where string // outbox-cdc.yaml:3, OUTBOX_CDC_SOURCE_SLOT, --slot; "default"
	layer int    // of two settings the one of the higher layer is in force; defaults are 0
}

// A reader turns sources into settings and collects what is wrong with them.
type reader struct {
	paths    []string       // of keys, in their order
	byPath   map[string]key // sections too
	problems []Problem

	variables []string // NAME=value: what ${NAME} in a file may stand for
}

func newReader() *reader {
	r := &reader{byPath: make(map[string]key)}
	for _, k := range keys {
		r.paths = append(r.paths, k.path)
		r.byPath[k.path] = k
	}
	return r
}

func (r *reader) problem(where, path, format string, args ...any) {
	r.problems = append(r.problems, Problem{Where: where, Key: path, Text: fmt.Sprintf(format, args...)})
}

func (r *reader) err() error {
	if len(r.problems) == 0 {
		return nil
	}
	return &Error{Problems: r.problems}
}

func (r *reader) defaults() []setting {
	var out []setting
	for _, path := range r.paths {
		if k := r.byPath[path]; k.def != nil {
			out = append(out, setting{key: k, value: k.def, where: "default"})
		}
	}
	return out
}

// environ reads the variables whose names begin with OUTBOX_CDC_. An empty one counts as not
// set, as it does for libpq.
func (r *reader) environ(environ []string) []setting {
	byName := make(map[string]key)
	var names []string
	for _, path := range r.paths {
		if k := r.byPath[path]; k.kind != section {
			byName[k.env()] = k
			names = append(names, k.env())
		}
	}
	var out []setting
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		if !strings.HasPrefix(name, envPrefix) || value == "" {
			continue
		}
		if k, ok := byName[name]; ok {
			out = r.scalar(out, k, value, name)
		} else if !isServiceLink(name) {
			r.problem(name, "", "unknown variable%s", hint(nearest(name, names)))
		}
	}
	return out
}

// isServiceLink reports whether Kubernetes makes the variable by itself, in every pod, for a
// Service whose name begins with outbox-cdc:
// https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables
func isServiceLink(name string) bool {
	return regexp.MustCompile(`^OUTBOX_CDC_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`).
		MatchString(name)
}

func (r *reader) flags(flags []Setting) []setting {
	var out []setting
	for _, f := range flags {
		k, ok := r.byPath[f.Key]
		switch {
		case !ok:
			r.problem(f.Flag, "", "unknown key%s", hint(nearest(f.Key, r.paths)))
		case k.kind == section:
			r.problem(f.Flag, "", "has no value of its own; its keys are: %s", strings.Join(r.children(f.Key), ", "))
		default:
			out = r.scalar(out, k, f.Value, f.Flag)
		}
	}
	return out
}

// scalar appends what text means for k.
func (r *reader) scalar(out []setting, k key, text, where string) []setting {
	var value any
	var err error
	if k.kind == placements || k.kind == rules {
		value, err = r.itemsFromText(k, text, where)
	} else {
		value, err = k.parse(text)
	}
	if err != nil {
		r.problem(where, k.path, "%v", err)
		return out
	}
	return append(out, setting{key: k, value: value, where: where})
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

// children returns the names directly under path; those at the top for "".
func (r *reader) children(path string) []string {
	var out []string
	for _, p := range r.paths {
		if name, ok := strings.CutPrefix("."+p, strings.TrimSuffix("."+path, ".")+"."); ok && !strings.Contains(name, ".") {
			out = append(out, name)
		}
	}
	return out
}

func hint(meant string) string {
	if meant == "" {
		return ""
	}
	return "; did you mean " + meant + "?"
}
