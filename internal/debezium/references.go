package debezium

import (
	"fmt"
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

// shellProvider is the provider in references to variables that a shell replaces in a script with the connector.
const shellProvider = "shell:"

func referencePattern() *regexp.Regexp { return compileOnce(`\$\{([A-Za-z0-9_-]+):([^}]*)\}`) }

// unfilled returns why the value of e is not yet one: it has a placeholder, or a reference to a config provider and is a
// key that cannot have one. It returns "" for a value.
func unfilled(e entry) string {
	if name := compileOnce(`\$\{` + shellProvider + `(\w+)\}`).FindStringSubmatch(e.value); name != nil && !takesReference(e.key) {
		text := fmt.Sprintf("${%s} is a placeholder, which the shell replaces: write the value in its place", name[1])
		if hasSuffix(e.key, "replacement") {
			text += fmt.Sprintf(", or \\${%s} for the group", name[1])
		}
		return text
	}
	if text := unevaluated(e); text != "" {
		return text
	}
	if m := placeholder(e); m != "" {
		return m + " is a placeholder: write the value in its place"
	}
	if reference := referencePattern().FindString(e.value); reference != "" && !takesReference(e.key) && !isFreeText(e.key) {
		return reference + " refers to a config provider, which only Kafka Connect can ask; write the value in its place"
	}
	return ""
}

// unevaluated returns that a value has an expression of Debezium Server, or "".
func unevaluated(e entry) string {
	m := compileOnce(`\$\{` + serverProvider + `([A-Za-z0-9_.]+)(?::([^}]*))?\}`).FindStringSubmatch(e.value)
	switch {
	case m == nil:
		return ""
	case hasSuffix(e.key, "replacement"):
		return fmt.Sprintf("Debezium Server replaces ${%s} with a variable of its environment: write $$ for $, and $$$$ in a compose file", m[1])
	case m[2] == "":
		return fmt.Sprintf("${%s} is an expression, which Debezium Server reads from its environment: write the value in its place", m[1])
	}
	return fmt.Sprintf("${%s:%s} is an expression, which Debezium Server reads from its environment: write the value of %[1]s in its place, or the default, %[2]s, if it is not set there", m[1], m[2])
}

// placeholder returns the placeholder of a template in a value, or "". ${NAME} is none in a key that takes references, or
// in a Java replacement. In a secret, the others count only if they are the whole value.
func placeholder(e entry) string {
	if isFreeText(e.key) {
		return ""
	}
	secret, replacement := hasSuffix(e.key, "password", ".jaas.config"), hasSuffix(e.key, "replacement")
	for _, p := range []struct {
		pattern string
		allowed bool
	}{
		{`(\$\{[A-Za-z_][A-Za-z0-9_]*(?::?-[^}]*)?\})`, replacement || takesReference(e.key)},
		{`(?:^|[^A-Za-z0-9_])(\$[A-Za-z_][A-Za-z0-9_]*)`, replacement || hasSuffix(e.key, ".list")}, // not the name of a nested class
		{`(@[A-Za-z][A-Za-z0-9_.]*@)`, false},
		{`(%[A-Za-z][A-Za-z0-9_]*%)`, false},
		{`^(<[A-Za-z][^<>]*>)$`, false},
		{`(<[A-Za-z][^<>]*>)`, !replacement},
	} {
		m := compileOnce(p.pattern).FindStringSubmatch(e.value)
		if m != nil && !p.allowed && (!secret || m[1] == e.value) {
			return m[1]
		}
	}
	return ""
}

// isFreeText reports whether any character has a meaning in the value of a key.
func isFreeText(key string) bool {
	return hasSuffix(key, "regex", "pattern", "literal", ".query", ".statements")
}

func hasSuffix(key string, suffixes ...string) bool {
	return slices.ContainsFunc(suffixes, func(s string) bool { return strings.HasSuffix(key, s) })
}

// takesReference reports whether our key for key may contain ${NAME}.
func takesReference(key string) bool {
	switch key {
	case "database.hostname", "database.port", "database.user", "database.password", "database.dbname",
		"database.sslrootcert", "database.sslcert", "database.sslkey", "database.sslpassword":
		return true
	}
	return strings.HasSuffix(key, ".sasl.jaas.config") || strings.HasPrefix(key, "server.sink.") && compileOnce(`\.(user|username|password)$`).MatchString(key)
}

// placeholders returns value with ${NAME} in place of every reference, and the names. A name is derived from
// purpose, unless the reference itself has the name of a variable: the name of a secret is often just "user",
// and a variable USER always exists. A ${NAME} without provider, which Kafka Connect does not replace, belongs
// to a template; it stays, and is among the names.
func (r *references) placeholders(value, purpose string) (out string, names []string) {
	out = compileOnce(referencePattern().String()+`|\$\{[A-Za-z_][A-Za-z0-9_]*\}`).ReplaceAllStringFunc(value, func(ref string) string {
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
	name := compileOnce(`[^A-Z0-9]+`).ReplaceAllString(strings.ToUpper(purpose), "_")
	if provider, variable := parts[1], parts[2]; (provider == "env" || provider == "strimzienv" || provider+":" == shellProvider) && compileOnce(`^[A-Za-z_][A-Za-z0-9_]*$`).MatchString(variable) {
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
