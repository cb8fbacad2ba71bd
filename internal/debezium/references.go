package debezium

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// references turns what a config provider of Kafka Connect would fill in, ${provider:path:key},
// into ${NAME}, which the relay takes from its environment.
type references struct {
	names map[string]string // by what it is for and the reference
	used  []string          // names, in the order of their first use
}

func referencePattern() *regexp.Regexp { return regexp.MustCompile(`\$\{([A-Za-z0-9_-]+):([^}]*)\}`) }

// unresolvable reports whether e refers to a provider where no placeholder is taken.
func (r *references) unresolvable(e entry) bool {
	return referencePattern().MatchString(e.value) && !takesReference(e.key)
}

// takesReference reports whether a key goes where the configuration takes ${NAME}.
func takesReference(key string) bool {
	switch key {
	case "database.hostname", "database.port", "database.user", "database.password", "database.dbname",
		"database.sslrootcert", "database.sslcert", "database.sslkey", "database.sslpassword":
		return true
	}
	return strings.HasSuffix(key, ".sasl.jaas.config")
}

// placeholders returns value with ${NAME} for every reference, and the names: of what the value is
// for, unless the reference has a variable's name itself. The name of a secret in a file is often
// just "user", and a variable USER is always there. A ${NAME} without provider, which Kafka Connect
// leaves alone, is a template's: it stays, and counts as one.
func (r *references) placeholders(value, purpose string) (out string, names []string) {
	out = regexp.MustCompile(referencePattern().String()+`|\$\{[A-Za-z_][A-Za-z0-9_]*\}`).ReplaceAllStringFunc(value, func(ref string) string {
		if !strings.Contains(ref, ":") {
			ref = "${env:" + ref[len("${"):]
		}
		name := r.name(ref, purpose)
		names = append(names, name)
		return "${" + name + "}"
	})
	return out, names
}

func (r *references) name(ref, purpose string) string {
	id := purpose + " " + ref
	if name, ok := r.names[id]; ok {
		return name
	}
	parts := referencePattern().FindStringSubmatch(ref)
	name := regexp.MustCompile(`[^A-Z0-9]+`).ReplaceAllString(strings.ToUpper(purpose), "_")
	if provider, variable := parts[1], parts[2]; (provider == "env" || provider == "strimzienv") && regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`).MatchString(variable) {
		name = variable
	}
	base := name
	for i := 2; slices.Contains(r.used, name) && name != parts[2]; i++ {
		name = base + "_" + strconv.Itoa(i)
	}
	if r.names == nil {
		r.names = make(map[string]string)
	}
	r.names[id] = name
	r.used = append(r.used, name)
	return name
}

// setThem asks for the variables to be set; empty without any.
func setThem(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return ", with ${" + strings.Join(names, "}, ${") + "}: set it in the environment of the relay"
}
