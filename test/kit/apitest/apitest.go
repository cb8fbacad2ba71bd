// Package apitest provides the tests that every public package of the module must pass. They check that
// its examples are complete and its dependencies few.
package apitest

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Examples fails the test unless every exported function, type and method of the package in the
// working directory has an example with expected output. It also fails if no example uses an exported
// constant, variable or field. The examples are in files called example*_test.go.
func Examples(t *testing.T, name string) {
	t.Helper()
	fset := token.NewFileSet()
	parse := func(pattern string) (files []*ast.File) {
		t.Helper()
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		for _, name := range names {
			file, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, file)
		}
		return files
	}
	pkg, err := doc.NewFromFiles(fset, parse("*.go"), name)
	if err != nil {
		t.Fatal(err)
	}
	run, used := make(map[string]bool), make(map[string]bool)
	for _, example := range doc.Examples(parse("example*_test.go")...) {
		symbol, _, _ := strings.Cut(example.Name, "_")
		run[example.Name], run[symbol] = example.Output != "", example.Output != "" || run[symbol]
		if example.Output == "" {
			t.Errorf("Example%s is not run", example.Name)
		}
		ast.Inspect(example.Code, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				used[id.Name] = true
			}
			return true
		})
	}
	needs := func(name string) {
		if !run[name] {
			t.Errorf("there is no Example%s", name)
		}
	}
	mentions := func(values ...*doc.Value) {
		for _, v := range values {
			for _, name := range v.Names {
				if ast.IsExported(name) && !used[name] {
					t.Errorf("no example has %s", name)
				}
			}
		}
	}
	mentions(pkg.Consts...)
	mentions(pkg.Vars...)
	for _, f := range pkg.Funcs {
		needs(f.Name)
	}
	for _, typ := range pkg.Types {
		needs(typ.Name)
		mentions(typ.Consts...)
		for _, f := range typ.Funcs {
			needs(f.Name)
		}
		for _, m := range typ.Methods {
			if m.Name != "Error" && m.Name != "Unwrap" {
				needs(typ.Name + "_" + m.Name)
			}
		}
	}
	ast.Inspect(&ast.File{Name: ast.NewIdent(name), Decls: declarations(pkg)}, func(n ast.Node) bool {
		if s, ok := n.(*ast.StructType); ok {
			for _, field := range s.Fields.List {
				for _, name := range field.Names {
					if name.IsExported() && !used[name.Name] {
						t.Errorf("no example has the field %s", name.Name)
					}
				}
			}
		}
		return true
	})
}

func declarations(pkg *doc.Package) (all []ast.Decl) {
	for _, typ := range pkg.Types {
		all = append(all, typ.Decl)
	}
	return all
}

// Imports checks the dependencies of the package in the working directory, called name. It fails the test
// if the package depends on modules other than pgx, those that pgx depends on, and uuid. A service links
// the package, and must not link the relay or a Kafka client with it.
func Imports(t *testing.T, name string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	allowed := []string{
		"github.com/outbox-cdc/outbox-cdc/" + name, "github.com/google/uuid", "github.com/jackc/pgx/v5",
		"github.com/jackc/pgpassfile", "github.com/jackc/pgservicefile", "golang.org/x/text", // pgx depends on these
	}
	for pkg := range strings.FieldsSeq(string(out)) {
		ok := false
		for _, a := range allowed {
			ok = ok || pkg == a || strings.HasPrefix(pkg, a+"/")
		}
		if !ok {
			t.Errorf("package %s depends on %s", name, pkg)
		}
	}
}
