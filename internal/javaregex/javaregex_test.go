package javaregex

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
)

// rewrite does the same as Kafka Connect's RegexRouter: it replaces the first match if the expression matches the
// whole name.
func rewrite(match, replace, name string) (string, error) {
	p, err := Compile(match)
	if err != nil {
		return "", err
	}
	r, err := p.Replacement(replace)
	if err != nil {
		return "", err
	}
	if ok, err := p.Matches(name); !ok || err != nil {
		return name, err
	}
	return p.ReplaceFirst(name, r)
}

// TestMatchesAsJavaDoes compares with results of java.util.regex of Java 17: lines of [match, replace, name,
// result].
func TestMatchesAsJavaDoes(t *testing.T) {
	f, err := os.Open("testdata/java.jsonl")
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
		if got, err := rewrite(match, replace, name); got != want || err != nil {
			t.Errorf("%q → %q makes %q of %q (error: %v), want %q", match, replace, got, name, err, want)
		}
	}
	if cases < 200 {
		t.Errorf("only %d cases", cases)
	}
}

func TestRefusesWhatItCannotTranslate(t *testing.T) {
	for _, tc := range []struct {
		match, replace string
		offset         int
		want           string // part of the error
	}{
		{"x(?=(a))b", "", 4, "a capturing group within (?= is not supported; write (?:…)"},
		{"(?!(?:(a)))b", "", 6, "a capturing group within (?!"},
		{"(?<=(?<n>a))b", "", 4, "a capturing group within (?<="},
		{"(?>(a))b", "", 3, "a capturing group within (?>"},
		{"(?<=a*)b", "", 5, "* has no upper limit"},
		{"(?<!a{2,})b", "", 5, "{2,} has no upper limit"},
		{"(?<=a?+)b", "", 5, "the possessive quantifier ?+ in a lookbehind"},
		{"(?<=(?>a))b", "", 4, "an atomic group in a lookbehind"},
		{`(a)(?<=\1)b`, "", 7, `the back reference \1 in a lookbehind`},
		{"(a)++", "", 3, "the possessive quantifier ++ on a capturing group"},
		{"(?:(a)b)*+", "", 8, "the possessive quantifier *+ on a capturing group"},
		{"(?:a|ab){2}+", "", 8, "the possessive quantifier {2}+ on a group"},
		{`(?i)(a)\1`, "", 7, `the back reference \1 under the flag i`},
		{`(a)*\1`, "", 4, `the back reference \1 to a group that is repeated or not closed`},
		{`(a|\1b)`, "", 3, `the back reference \1 to a group that is repeated or not closed`},
		{`\1(a)`, "", 0, `no group before \1 has this name or number`},
		{`(a)\2`, "", 3, `no group before \2`},
		{`\k<n>(?<n>a)`, "", 0, `no group before \k<n>`},
		{`(?<n>a)\kn`, "", 7, `\k must be followed by <name>`},
		{"[a&&b]", "", 2, "the intersection of classes &&"},
		{`[\Qa\E]`, "", 1, `\Q within a class`},
		{"[a[bc]]", "", 2, "a class within a class"},
		{" [[a-z]", "", 2, "a class within a class"},
		{"(?m)a", "", 0, "the flag m"},
		{"a(?x:b)", "", 1, "the flag x"},
		{`a\y`, "", 1, `\y`},
		{`a\G`, "", 1, `\G`},
		{`a\X`, "", 1, `\X`},
		{`[\R]`, "", 1, `\R`},
		{`[\v-a]`, "", 1, `\v before -`},
		{`\b{g}`, "", 0, `\b{`},
		{`\p{IsAlphabetic}`, "", 0, `\p{IsAlphabetic}`},
		{`\p{javaLowerCase}`, "", 0, `\p{javaLowerCase}`},
		{`(?i)\p{Lu}`, "", 4, `\p{Lu} under the flag i`},
		{`[\P{L}\p{Lu}]`, "", 6, `a property after \P in a class`},
		{`\x{110000}`, "", 0, `\x{110000}`},
		{`\uD83D`, "", 0, `\uD83D`},
		{`\xZZ`, "", 0, "no character of Java"},
		{"a)", "", 1, "closes nothing"},
		{"a(b", "", 1, "the group is not closed"},
		{"a[b", "", 1, "the class is not closed"},
		{"[z-a]", "", 1, "ends before it begins"},
		{"(?<1a>b)", "", 0, "no group of Java"},
		{"(?'n'b)", "", 0, "no group of Java"},
		{"(?#b)", "", 0, "no group of Java"},
		{"a{", "", 1, "{ must begin a repetition"},
		{"a{,2}", "", 1, "{ must begin a repetition"},
		{`a\`, "", 1, `\ has nothing after it`},
		{`[a\`, "", 2, `\ has nothing after it`},
		{"*a", "", 0, "there is nothing that * could repeat"},
		{"a(?i)*", "", 5, "there is nothing that * could repeat"},
		{"a**", "", 2, "there is nothing that * could repeat"},
		{"(|+)", "", 2, "there is nothing that + could repeat"},
		{"a{3,2}", "", 0, "invalid repeat count"},
		{"(?<a>b)(?<a>c)", "", 7, "two groups <a>"},
		{"(.*)", "a$2", 1, "there is no group $2; the groups are: $0, $1"},
		{"(?<n>.*)", "${nope}", 0, "there is no group ${nope}; the groups are: $0, $1, ${n}"},
		{"(.*)", "${}", 0, "there is no group ${}"},
		{"(?<n>.*)", "a.${n", 2, "there is no group ${n"},
		{"(.*)", "a$", 1, "$ must begin"},
		{"(.*)", "$x", 0, "$ must begin"},
		{"(.*)", `a\`, 1, `\ has nothing after it`},
	} {
		_, err := rewrite(tc.match, tc.replace, "")
		got, ok := errors.AsType[*syntaxError](err)
		if !ok {
			t.Errorf("%q → %q: error is %v, want a SyntaxError", tc.match, tc.replace, err)
			continue
		}
		if got.offset != tc.offset || !strings.Contains(got.reason, tc.want) {
			t.Errorf("%q → %q: %v; want at offset %d: %s", tc.match, tc.replace, err, tc.offset, tc.want)
		}
	}
}

func TestIgnoresTheCaseOfASCIILettersOnly(t *testing.T) {
	p, err := CompileIgnoreCase(`shop\.[a-y]é`)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"SHOP.Xé": true, "shop.aé": true, "shop.aÉ": false, "ſhop.aé": false, "shop.Zé": false} {
		if got, err := p.Matches(name); got != want || err != nil {
			t.Errorf("matches %q: %t, %v; want %t", name, got, err, want)
		}
	}
}

func TestCopiesBytesThatAreNotUTF8(t *testing.T) {
	got, err := rewrite(`a(.)(b.*)`, "$2-$1", "a\xffb\xc3")
	if want := "b\xc3-\xff"; got != want || err != nil {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
}

func TestGivesUpOnCatastrophicBacktracking(t *testing.T) {
	t.Parallel()
	const name = "payload-"
	for match, text := range map[string]string{
		`payload-(a|aa)+b`: name + strings.Repeat("a", 100),        // too many steps
		`payload-(a|b)*`:   name + strings.Repeat("ab", 1_000_000), // too much memory
	} {
		_, err := rewrite(match, "", text)
		if !errors.Is(err, ErrBacktracking) || strings.Contains(err.Error(), name) {
			t.Errorf("%s: error is %v, want %v", match, err, ErrBacktracking)
		}
	}
	if got, err := rewrite(`payload-(?>aa|a)++b|.*`, "x", name+strings.Repeat("a", 100)); got != "x" || err != nil {
		t.Errorf("possessive: %q, %v", got, err)
	}
}

// FuzzRewrite looks for an expression and a name that cause a panic.
func FuzzRewrite(f *testing.F) {
	f.Add(`(?<routedByValue>.*)`, `outbox.event.${routedByValue}`, "Order")
	f.Add(`(?i)[a-z&&[^b]]\Q\E\x{1}{2,}`, `$1\$`, "")
	f.Add(`(?<!a{1,2})(b|(c))*+\2(?>d++)$`, `$2`, "bcd")
	f.Fuzz(func(_ *testing.T, match, replace, name string) {
		_, _ = rewrite(match, replace, name)
	})
}
