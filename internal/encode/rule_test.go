package encode

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
)

// TestRulesAreJavas compares with what java.util.regex of Java 17 made of the same rules and
// names: lines of [match, replace, name, result].
func TestRulesAreJavas(t *testing.T) {
	f, err := os.Open("testdata/java-rules.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cases := 0
	for lines := bufio.NewScanner(f); lines.Scan(); cases++ {
		var c [4]string
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		match, replace, name, want := c[0], c[1], c[2], c[3]
		rule, err := ParseRule(match, replace)
		if err != nil {
			t.Errorf("%q → %q: %v", match, replace, err)
			continue
		}
		if got := rule.Apply(name); got != want {
			t.Errorf("%q → %q makes %q of %q, want %q", match, replace, got, name, want)
		}
	}
	if cases < 100 {
		t.Errorf("only %d cases", cases)
	}
}

func TestRefusedRules(t *testing.T) {
	const possessive, within = "the possessive quantifier", "within a class"
	for _, tc := range []struct {
		match, replace string
		part           string
		offset         int
		want           string // in the reason
	}{
		{"x(?=a)b", "", "match", 1, "lookahead (?= cannot be expressed"},
		{"x(?!a)b", "", "match", 1, "negative lookahead (?!"},
		{"(?<=a)b", "", "match", 0, "lookbehind (?<="},
		{"(?<!a)b", "", "match", 0, "negative lookbehind (?<!"},
		{"(?>a)b", "", "match", 0, "an atomic group (?>"},
		{"xa*+", "", "match", 2, possessive + " *+"},
		{"a++", "", "match", 1, possessive + " ++"},
		{"a?+", "", "match", 1, possessive + " ?+"},
		{"a{2}+", "", "match", 1, possessive + " {2}+"},
		{`(a)\1`, "", "match", 3, `the reference back \1`},
		{`(?<n>a)\k<n>`, "", "match", 7, `the reference back \k`},
		{"[a&&b]", "", "match", 2, "the intersection of classes &&"},
		{`[\Qa\E]`, "", "match", 1, `\Q ` + within},
		{"[a[bc]]", "", "match", 2, "a class " + within},
		{" [[a-z]", "", "match", 2, "a class " + within},
		{"(?m)a", "", "match", 0, "the flag m"},
		{"a(?x:b)", "", "match", 1, "the flag x"},
		{`a\Z`, "", "match", 1, `\Z`},
		{`a\y`, "", "match", 1, `\y`},
		{`[\R]`, "", "match", 1, `\R`},
		{`\b{g}`, "", "match", 0, `\b{`},
		{`\p{IsAlphabetic}`, "", "match", 0, `\p{IsAlphabetic}`},
		{`\p{javaLowerCase}`, "", "match", 0, `\p{javaLowerCase}`},
		{`\x{110000}`, "", "match", 0, `\x{110000}`},
		{`\xZZ`, "", "match", 0, "no character of Java"},
		{"a)", "", "match", 1, "closes nothing"},
		{"a(b", "", "match", 1, "the group is not closed"},
		{"a[b", "", "match", 1, "the class is not closed"},
		{"[z-a]", "", "match", 1, "ends before it begins"},
		{"(?<1a>b)", "", "match", 0, "no group of Java"},
		{"a{", "", "match", 1, "{ must begin a repetition"},
		{`a\`, "", "match", 1, `\ has nothing behind it`},
		{`[a\`, "", "match", 2, `\ has nothing behind it`},
		{"*a", "", "match", 0, "missing argument to repetition operator"},
		{"a{2000}", "", "match", 0, "invalid repeat count"},
		{"(?<a>b)(?<a>c)", "", "match", 7, "two groups <a>"},
		{"(.*)", "a$2", "replace", 1, "there is no group $2; the groups are: $0, $1"},
		{"(?<n>.*)", "${nope}", "replace", 0, "there is no group ${nope}; the groups are: $0, $1, ${n}"},
		{"(?<n>.*)", "a.${n", "replace", 2, "there is no group ${n"},
		{"(.*)", "a$", "replace", 1, "$ must begin"},
		{"(.*)", "$x", "replace", 0, "$ must begin"},
		{"(.*)", `a\`, "replace", 1, `\ has nothing behind it`},
	} {
		_, err := ParseRule(tc.match, tc.replace)
		got, ok := errors.AsType[*RuleError](err)
		if !ok {
			t.Errorf("%q → %q: error is %v, want a RuleError", tc.match, tc.replace, err)
			continue
		}
		if got.Part != tc.part || got.Offset != tc.offset || !strings.Contains(got.Reason, tc.want) {
			t.Errorf("%q → %q: %v; want %s at offset %d: %s", tc.match, tc.replace, err, tc.part, tc.offset, tc.want)
		}
	}
}

// FuzzRule: no expression and no name makes it panic.
func FuzzRule(f *testing.F) {
	f.Add(`(?<routedByValue>.*)`, `outbox.event.${routedByValue}`, "Order")
	f.Add(`(?i)[a-z&&[^b]]\Q\E\x{1}{2,}`, `$1\$`, "")
	f.Fuzz(func(_ *testing.T, match, replace, name string) {
		if rule, err := ParseRule(match, replace); err == nil {
			rule.Apply(name)
		}
	})
}
