package conformance

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseScript(t *testing.T) {
	script, err := parseScript(`-- what it is about
SELECT 'a;''b', E'\';', "c;""d"; SELECT $$;$$, $tag$ ; $$ $tag$;
-- session: two
SELECT 1; -- the end; of it

COPY t (a) FROM STDIN;
1;	\N
\.
SELECT
  2;
`)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range script {
		got = append(got, s.session+"|"+strings.TrimSpace(s.sql)+"|"+s.data)
	}
	want := []string{
		`|SELECT 'a;''b', E'\';', "c;""d";|`,
		`|SELECT $$;$$, $tag$ ; $$ $tag$;|`,
		`two|SELECT 1;|`,
		"two|COPY t (a) FROM STDIN;|1;\t\\N\n",
		"two|SELECT\n  2;|",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestParseScriptRefuses(t *testing.T) {
	for _, text := range []string{"SELECT 1", "SELECT 'a;", "SELECT $x$ ; $$;", `SELECT E'\';`, "COPY t FROM STDIN;\n1\n"} {
		if script, err := parseScript(text); err == nil {
			t.Errorf("%q is read as %q", text, script)
		}
	}
}
