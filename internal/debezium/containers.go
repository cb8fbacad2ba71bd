package debezium

import (
	"regexp"
	"slices"
	"strings"
)

// runsContainer matches the beginning of a command that starts a container.
func runsContainer() *regexp.Regexp {
	return compileOnce(`\b(?:docker|podman|nerdctl)[ \t]+(?:container[ \t]+)?run\b`)
}

// commands collects the environments of the containers that the commands of a script start.
func (f *finder) commands(text string) {
	for _, at := range runsContainer().FindAllStringIndex(text, -1) {
		var vars []pair
		var image, name string
		words := wordsOf(text, at[1])
		for i, w := range words {
			value, isVariable := optionOf(words, i, "-e", "--env")
			called, isName := optionOf(words, i, "--name")
			switch {
			case isVariable:
				key, set, ok := strings.Cut(value, "=")
				if !ok {
					set = "${" + key + "}" // of the shell's environment
				}
				vars = append(vars, pair{key, strings.ReplaceAll(set, "${"+shellProvider, "${"), f.line(w.line)}) // as in a compose file
			case isName:
				name = called
			case image == "" && strings.Contains(w.key, "debezium/") && !strings.Contains(w.key, "="):
				image = w.key
			}
		}
		f.container(vars, image, name, nil)
	}
}

// wordsOf returns the words of the shell's command that goes on at a place, each as a key with its line. Variables are as [unquoted]
// leaves them.
func wordsOf(text string, i int) []pair {
	var words []pair
	for i < len(text) {
		switch {
		case text[i] == ' ' || text[i] == '\t':
			i++
		case strings.HasPrefix(text[i:], "\\\n"), strings.HasPrefix(text[i:], "\\\r\n"):
			i += strings.IndexByte(text[i:], '\n') + 1
		default:
			word := unquoted(text, i, noQuotes)
			end := word.at[len(word.at)-1]
			if end == i {
				return words // the end of the command
			}
			words = append(words, pair{key: word.text, line: strings.Count(text[:i], "\n") + 1})
			i = end
		}
	}
	return words
}

// optionOf returns the value of an option of a command if its word i ends one with one of the names: -e VALUE, -eVALUE, --env VALUE or
// --env=VALUE.
func optionOf(words []pair, i int, names ...string) (value string, ok bool) {
	if i > 0 && slices.Contains(names, words[i-1].key) {
		return words[i].key, true
	}
	for _, name := range names {
		rest, found := strings.CutPrefix(words[i].key, name)
		if isLong := strings.HasPrefix(name, "--"); found && isLong {
			rest, found = strings.CutPrefix(rest, "=")
		}
		if found && rest != "" {
			return rest, true
		}
	}
	return "", false
}
