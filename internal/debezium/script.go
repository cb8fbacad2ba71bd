package debezium

import (
	"cmp"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// A script is a text that may have JSON objects with connectors, such as a shell script with curl.
type script struct {
	text      string
	marks     []int // places of the keys connector.class
	documents []hereDocument
	inside    body      // the last body in quotes
	failed    []failure // objects that are not JSON
}

// A hereDocument is the place of a here-document of a shell.
type hereDocument struct {
	from, to int
	quoted   bool // the shell replaces nothing in it
}

// A body is a part of a script, without the quoting of the shell.
type body struct {
	text string
	at   []int // place in the script of each byte of text, and of its end
}

// A failure is an object that is not JSON.
type failure struct {
	start, at int // places of the object and of the error
	problem   string
}

// The quoting of a body. Others are the quotation marks themselves.
const (
	noQuotes byte = 0
	hereText byte = '<' // a here-document in which the shell replaces variables
)

// classMark matches a key connector.class of JSON with the connector's class, also between double quotes of a shell.
func classMark() *regexp.Regexp {
	return compileOnce(`\\?"connector\.class\\?"\s*:(?:\s*\\?"([^"\\]*))?`)
}

func newScript(text string) *script {
	s := &script{text: text}
	for _, m := range classMark().FindAllStringIndex(text, -1) {
		s.marks = append(s.marks, m[0])
	}
	for _, m := range compileOnce(`<<-?[ \t]*(\\?['"]?)(\w+)['"]?[^\n]*\n`).FindAllStringSubmatchIndex(text, -1) {
		end := regexp.MustCompile(`(?m)^[ \t]*` + text[m[4]:m[5]] + `[ \t]*$`).FindStringIndex(text[m[1]:])
		if end != nil {
			s.documents = append(s.documents, hereDocument{m[1], m[1] + end[0], m[3] > m[2]})
		}
	}
	return s
}

// scripts collects the connectors of the JSON objects in a text. One that is not JSON becomes a broken Input.
func (f *finder) scripts(text, name string) {
	s := newScript(text)
	f.noteDefaults(text, f.line)
	outer := f.yaml
	f.yaml = false
	defer func() { f.yaml = outer }()
	end := 0 // of the last object
	for i := 0; len(s.marks) > 0 && i < s.marks[len(s.marks)-1]; i++ {
		if text[i] != '{' || !strings.ContainsAny(firstByte(text[i+1:]), `"\`) { // the name of a member follows
			continue
		}
		if node, after := s.object(i); node != nil {
			f.failures(s, end, i)
			f.place(node)
			f.node(node, cmp.Or(s.connectorName(end, i, after), name))
			end, i = after, after-1
		}
	}
	f.failures(s, end, len(text))
}

// firstByte returns the first byte of a text that is no space, or "".
func firstByte(text string) string {
	text = strings.TrimLeft(text, " \t\r\n")
	return text[:min(1, len(text))]
}

// object returns the JSON object at a place, and the place of its end. It returns nil if the object has no connector, or if
// it is not JSON, which it adds to the failures.
func (s *script) object(i int) (node *yaml.Node, end int) {
	for _, b := range s.bodies(i) {
		if !s.hasMark(i, b.place(i, len(b.text))) {
			continue
		}
		r := newJSONReader(b.text)
		r.line = strings.Count(s.text[:i], "\n")
		node, err := r.value()
		if err != nil {
			at, problem := r.problem(0)
			s.failed = append(s.failed, failure{i, b.place(i, at), problem})
		} else if end := b.place(i, int(r.decoder.InputOffset())); s.hasMark(i, end) {
			return node, end
		}
	}
	return nil, 0
}

// hasMark reports whether there is a key connector.class between two places.
func (s *script) hasMark(from, to int) bool {
	next, _ := slices.BinarySearch(s.marks, from)
	return next < len(s.marks) && s.marks[next] < to
}

// place returns the place in the script of a byte of a body, which starts at start.
func (b body) place(start, i int) int {
	if b.at == nil {
		return start + i
	}
	return b.at[i]
}

// bodies returns what the text from i on may be: first without the quotes of a shell, if it is in some, then as it is.
func (s *script) bodies(i int) []body {
	end := len(s.text)
	quote := noQuotes
	for _, d := range s.documents {
		if d.from <= i && i < d.to {
			if end = d.to; !d.quoted {
				quote = hereText
			}
		}
	}
	if before := strings.TrimRight(s.text[:i], " \t\r\n"); before != "" && (before[len(before)-1] == '\'' || before[len(before)-1] == '"') {
		quote = before[len(before)-1]
	}
	asIs := body{text: s.text[i:end]}
	if from, found := slices.BinarySearch(s.inside.at, i); found { // an object in the last one
		return []body{{s.inside.text[from:], s.inside.at[from:]}, asIs}
	}
	if quote == noQuotes {
		return []body{asIs}
	}
	s.inside = unquoted(s.text[:end], i, quote)
	return []body{s.inside, asIs}
}

// unquoted returns the text from i on to the end of the shell's word, or of the here-document with which the text ends.
// Variables become ${shell:NAME}, or their default.
func unquoted(text string, i int, quote byte) body {
	var out strings.Builder
	var at []int
	put := func(s string) {
		for range len(s) {
			at = append(at, i)
		}
		out.WriteString(s)
	}
	pattern := compileOnce(`^\$(?:(\w+)|\{(\w+)(?::?-([^}]*))?\})`)
	escaped := map[byte]string{'"': "$`\"\\", hereText: "$`\\"}
	for i < len(text) {
		c, size := text[i], 1
		var variable []string
		if c == '$' {
			variable = pattern.FindStringSubmatch(text[i:])
		}
		switch {
		case quote == '\'' && c != '\'':
			put(string(c))
		case variable != nil && variable[3] != "":
			put(variable[3])
			size = len(variable[0])
		case variable != nil:
			put("${" + shellProvider + variable[1] + variable[2] + "}")
			size = len(variable[0])
		case c == '\\' && i+1 < len(text) && (quote == noQuotes || strings.IndexByte(escaped[quote], text[i+1]) >= 0):
			put(text[i+1 : i+2])
			size = 2
		case c == '\\' && strings.HasPrefix(text[i+1:], "\n"): // the line goes on
		case quote != hereText && (c == '\'' || c == '"') && (quote == noQuotes || quote == c):
			quote ^= c // opens or closes
		case quote == noQuotes && strings.IndexByte(" \t\r\n;&|<>()`", c) >= 0:
			return body{out.String(), append(at, i)}
		default:
			put(string(c))
		}
		i += size
	}
	return body{out.String(), append(at, i)}
}

// connectorName returns the name in the URL of a request whose body is from start to end, or "". after is where the request
// before it ended.
func (s *script) connectorName(after, start, end int) string {
	line := compileOnce(`^(?:\\\r?\n|[^\n])*`).FindString(s.text[end:])
	return cmp.Or(nameInURL(line), nameInURL(s.text[after:start]))
}

// nameInURL returns the name of the connector in the last URL of a configuration that a text has, or "".
func nameInURL(text string) string {
	found := compileOnce(`/connectors/([^/\s"'?$]+)/config\b`).FindAllStringSubmatch(text, -1)
	if found == nil {
		return ""
	}
	name, err := url.PathUnescape(found[len(found)-1][1])
	if err != nil {
		return ""
	}
	return name
}

// failures adds a broken Input for each connector between two places of a script: none of the objects there is JSON.
func (f *finder) failures(s *script, from, to int) {
	last := -1
	for _, mark := range s.marks {
		var worst *failure // the one that has been read furthest
		for i, c := range s.failed {
			if from <= mark && mark < to && from <= c.start && c.start < mark && (worst == nil || c.at > worst.at) {
				worst = &s.failed[i]
			}
		}
		if worst == nil || worst.at == last {
			continue
		}
		last = worst.at
		before := s.text[:worst.at]
		in := &Input{form: formREST, Name: s.connectorName(from, worst.start, worst.at), broken: fmt.Errorf("not JSON: line %d, column %d: %s",
			f.line(strings.Count(before, "\n")+1), len(before)-strings.LastIndex(before, "\n"), worst.problem)}
		if name := compileOnce(`"name\\?"\s*:\s*\\?"([^"\\]*)`).FindStringSubmatch(s.text[worst.start:mark]); name != nil {
			in.Name = name[1]
		}
		in.add("connector.class", "connector.class", classMark().FindStringSubmatch(s.text[mark:])[1])
		f.add(in)
	}
}
