package runbook

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

// TestRunbook requires that the runbook has a section and a row for every exit code.
func TestRunbook(t *testing.T) {
	t.Parallel()
	text := read(t, "../../docs/runbook.md")
	anchors := map[string]bool{}
	for _, s := range readPage(t, "../../docs/runbook.md") {
		anchors[anchor(s.title)] = true
	}
	for _, code := range exitCodes(t) {
		if !anchors["exit-"+code] {
			t.Errorf("exit code %s has no section", code)
		}
		if !strings.Contains(text, "\n| ["+code+"](#exit-"+code+") |") {
			t.Errorf("exit code %s has no row", code)
		}
	}
}

// TestVerdicts requires that the page explains every verdict of the live page and status.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	text := read(t, "../../docs/verdicts.md")
	for _, verdict := range verdicts(t) {
		if strings.HasSuffix(verdict, " ") { // the name of the broker follows
			verdict += "Kafka"
		}
		verdict = strings.Replace(verdict, "%d", "…", 1)
		if !strings.Contains(text, "`"+verdict+"`") {
			t.Errorf("the page does not explain %q", verdict)
		}
	}
}

// TestLogMessages requires that the page explains every log message of level WARN or ERROR, and no other one.
func TestLogMessages(t *testing.T) {
	t.Parallel()
	text := read(t, "../../docs/log.md")
	lines := loggedLines(t)
	if len(lines) < 30 {
		t.Errorf("only %d lines are logged: %q", len(lines), lines)
	}
	for _, line := range lines {
		if !strings.Contains(text, "`"+line) {
			t.Errorf("the page does not explain %q", line)
		}
	}
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(text, -1) {
		if !slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(row[1], line) }) {
			t.Errorf("nothing logs %q any more", row[1])
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	rig.Must(t, err)
	return string(data)
}

// anchor returns the fragment that links to a heading.
func anchor(title string) string {
	kept := strings.Map(func(r rune) rune {
		if strings.ContainsRune(" -_", r) || r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, strings.ToLower(title))
	return strings.ReplaceAll(kept, " ", "-")
}

// verdicts reads the verdicts of the live page and status from the code.
func verdicts(t *testing.T) []string {
	t.Helper()
	var all []string
	for file, verdict := range map[string]string{
		"../../internal/admin/page.html":   `level: '(?:good|warn|bad)', title: '([^']+)'`,
		"../../internal/admin/verdict.go":  `Verdict\{\s*(?:Good|Warn|Bad), "([^"]+)"`,
		"../../internal/status/verdict.go": `(?:Level: admin\.(?:Good|Warn|Bad), Title: |v\.Title.* = fmt\.Sprintf\()"([^"]+)"`,
		"../../internal/catalog/risk.go":   `"(The slot [^"]+)"`,
	} {
		text, err := os.ReadFile(file)
		rig.Must(t, err)
		found := regexp.MustCompile(verdict).FindAllStringSubmatch(string(text), -1)
		if len(found) == 0 {
			t.Errorf("no verdicts in %s", file)
		}
		for _, one := range found {
			all = append(all, one[1])
		}
	}
	if len(all) < 20 {
		t.Errorf("only %d verdicts: %q", len(all), all)
	}
	return all
}

// exitCodes reads the exit codes from their declarations.
func exitCodes(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../../internal/exit/exit.go", nil, 0)
	rig.Must(t, err)
	var codes []string
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok {
			codes = append(codes, spec.Values[0].(*ast.BasicLit).Value)
		}
		return true
	})
	if len(codes) != 10+1 {
		t.Errorf("exit codes %v", codes)
	}
	return codes
}

// loggedLines reads the messages of level WARN and ERROR from the code, and the possible contents of
// "catalog change", each up to its first clause.
func loggedLines(t *testing.T) []string {
	t.Helper()
	var lines []string
	rig.Must(t, filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && slices.Contains([]string{".git", "test", "sinktest", "demo", "deploy", "check", "prune", "inbox", "examples"}, d.Name()) {
			return filepath.SkipDir
		}
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if line := warning(n); line != "" {
				lines = append(lines, line)
			}
			return true
		})
		return nil
	}))
	slices.Sort(lines)
	return slices.Compact(lines)
}

// warning returns the message of the warning that n logs, up to its first clause, or "" if n logs none.
func warning(n ast.Node) string {
	var text ast.Expr
	switch n := n.(type) {
	case *ast.CallExpr:
		text = warned(n)
	case *ast.CompositeLit: // catalog.Warning
		fields := map[string]ast.Expr{}
		for _, e := range n.Elts {
			if field, ok := e.(*ast.KeyValueExpr); ok {
				if name, ok := field.Key.(*ast.Ident); ok {
					fields[name.Name] = field.Value
				}
			}
		}
		if fields["Object"] != nil {
			text = fields["Text"]
		}
	}
	for {
		switch e := text.(type) {
		case *ast.BinaryExpr:
			text = e.X
		case *ast.CallExpr: // fmt.Sprintf
			text = e.Args[0]
		case *ast.BasicLit:
			line, err := strconv.Unquote(e.Value)
			if err != nil {
				return ""
			}
			line, _, _ = strings.Cut(line, ":")
			line, _, _ = strings.Cut(line, ";")
			return regexp.MustCompile(`%[a-z]`).ReplaceAllString(strings.TrimSpace(line), "…")
		default:
			return ""
		}
	}
}

// warned returns the message of a call that logs at level WARN or ERROR, or nil for other calls.
func warned(call *ast.CallExpr) ast.Expr {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return nil
	}
	switch name := method.Sel.Name; {
	case (name == "WarnContext" || name == "ErrorContext" || name == "warn") && len(call.Args) > 1:
		return call.Args[1]
	case (name == "Warn" || name == "Error") && len(call.Args) > 0:
		return call.Args[0]
	case name == "Log" || name == "LogAttrs":
		if level, ok := call.Args[1].(*ast.SelectorExpr); !ok || level.Sel.Name != "LevelInfo" && level.Sel.Name != "LevelDebug" {
			return call.Args[2]
		}
	}
	return nil
}
