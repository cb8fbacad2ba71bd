package debezium

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// references replaces references to a config provider of Kafka Connect, ${provider:path:key}, with ${NAME},
// which the relay reads from its environment.
type references struct {
	names map[string]string // by purpose and reference
	used  []string          // names, in the order of their first use
}

func referencePattern() *regexp.Regexp { return regexp.MustCompile(`\$\{([A-Za-z0-9_-]+):([^}]*)\}`) }

// unresolvable reports whether e has a reference to a provider and is a key that cannot have a placeholder.
func (r *references) unresolvable(e entry) bool {
	return referencePattern().MatchString(e.value) && !takesReference(e.key)
}

// takesReference reports whether our key for key may contain ${NAME}.
func takesReference(key string) bool {
	switch key {
	case "database.hostname", "database.port", "database.user", "database.password", "database.dbname",
		"database.sslrootcert", "database.sslcert", "database.sslkey", "database.sslpassword":
		return true
	}
	return strings.HasSuffix(key, ".sasl.jaas.config")
}

// placeholders returns value with ${NAME} in place of every reference, and the names. A name is derived from
// purpose, unless the reference itself has the name of a variable: the name of a secret is often just "user",
// and a variable USER always exists. A ${NAME} without provider, which Kafka Connect does not replace, belongs
// to a template; it stays, and is among the names.
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

// setThem returns a sentence that asks to set the variables, or "" without names.
func setThem(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return ", with ${" + strings.Join(names, "}, ${") + "}: set it in the environment of the relay"
}
