package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/internal/bench"
	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/demo"
	"github.com/outbox-cdc/outbox-cdc/test/kit/certtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/doctest"
)

// The tests run everything that the documentation tells a user to type. TestOperations in test/runbook runs the
// statements and commands of the operations pages, and the SQL of the other pages, on real servers. This test
// checks that each outbox-cdc command in a block or in text exists, with its flags. Every other command must be in
// the table below.
func TestDocumentedCommands(t *testing.T) {
	found := 0
	used := make(map[string]bool)
	for _, page := range documents(t) {
		for _, b := range page.blocks {
			if b.lang != "sh" {
				continue
			}
			for _, line := range commands(b.text) {
				ours := programs(line)
				for _, args := range ours {
					found++
					if err := parses(args, true); err != nil {
						t.Errorf("%s: %s: %v", page.name, line, err)
					}
				}
				if len(ours) > 0 || page.tried() {
					continue
				}
				i := slices.IndexFunc(others(), func(o other) bool { return strings.HasPrefix(line, o.command) })
				if i < 0 {
					t.Errorf("%s: no test runs %q, and the table does not list it", page.name, line)
					continue
				}
				used[others()[i].command] = true
			}
		}
		for _, span := range page.spans {
			for _, args := range programs(span) {
				found++
				if err := parses(args, false); err != nil {
					t.Errorf("%s: %s: %v", page.name, span, err)
				}
			}
		}
	}
	if found < 60 {
		t.Errorf("only %d commands were found", found)
	}
	for _, o := range others() {
		if !used[o.command] {
			t.Errorf("no page contains %q any more", o.command)
		}
	}
}

// An other is a command of another program, outside of the pages that TestOperations runs.
type other struct{ command, why string }

func others() []other {
	const (
		guide    = "tried by ./deploy: TestGuideToSystemd"
		systemd  = "takes a running systemd"
		docker   = "takes Docker; ./deploy and ./deploy/check try what the files say"
		cluster  = "takes a cluster; ./deploy/check reads the manifests as the API server would"
		chart    = "takes a cluster; ./deploy/check renders the chart with these values"
		rules    = "tried by ./deploy/check, with promtool's own libraries"
		connect  = "takes a Kafka Connect with Debezium; ./internal/debezium answers with what one has answered"
		acls     = "tried by ./internal/check: TestDocumentedSeparation"
		tooling  = "tried by whoever changes the repository, and on every change by .ci/run"
		release  = "takes a release"
		rabbit   = "RabbitMQ's own tools; ./sink/rabbitmq declares such queues and exchanges"
		redis    = "Redis' own tools; ./sink/redisstreams sends such commands"
		receiver = "the shell, openssl and Go; ./sink/webhook compiles the receiver"
		position = "the arithmetic of pg_lsn is Postgres' own"
	)
	return []other{
		{"sudo install ", guide},
		{"sudo systemd-sysusers ", guide},
		{"sudo tee ", guide},
		{"sudo systemctl ", systemd},
		{"journalctl ", systemd},
		{"docker ", docker},
		{"kubectl ", cluster},
		{"cat >my-values.yaml ", chart},
		{"helm ", chart},
		{"promtool ", rules},
		{"curl -sf", connect},
		{"export CONNECT=", connect},
		{"kafka-acls.sh ", acls},
		{"kafka-topics.sh ", "Kafka's own tool; TestOperations creates topics with it"},
		{"nats-server ", "NATS' own program"},
		{"nats stream ", "NATS' own tool; ./sink/jetstream creates and reads streams"},
		{"rabbitmqctl ", rabbit},
		{"rabbitmqadmin ", rabbit},
		{"rabbitmq-plugins ", rabbit},
		{"for i in 1 2 3 4; do", rabbit},
		{"done", rabbit},
		{"redis-server ", redis},
		{"redis-cli ", redis},
		{"echo \"whsec_", receiver},
		{"SECRET=", receiver},
		{"aws sqs ", "takes an account; ./sink/sqs creates queues and receives messages"},
		{"kafka-console-consumer.sh ", "Kafka's own tool"},
		{"make ", tooling},
		{"go ", tooling},
		{"sha256sum ", release},
		{"cosign ", release},
	}
}

// The examples in the help are valid commands, too.
func TestHelpExamples(t *testing.T) {
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		for _, line := range commands(cmd.Example) {
			for _, args := range programs(line) {
				if err := parses(args, true); err != nil {
					t.Errorf("%s: %s: %v", cmd.CommandPath(), line, err)
				}
			}
		}
		if cmd.Example == "" && cmd.Runnable() && !cmd.Hidden && !cmd.HasSubCommands() && cmd.Name() != "help" && !strings.Contains(cmd.CommandPath(), "completion") {
			t.Errorf("%s has no example", cmd.CommandPath())
		}
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	for _, program := range []string{"outbox-cdc", "outbox-cdc-demo", "outbox-cdc-bench"} {
		visit(commandLine(program))
	}
}

// docs/cli.md contains every command.
func TestCommandPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		if cmd.Runnable() && !cmd.HasSubCommands() && !strings.Contains(string(page), "`"+cmd.CommandPath()+"`") {
			t.Errorf("the page does not have %s", cmd.CommandPath())
		}
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(commandLine("outbox-cdc"))
}

// secretFile matches a key whose value is read from a file.
var secretFile = regexp.MustCompile(`(_file: )[^\s,}]+`)

// rootFile matches a CA file in a connection string.
var rootFile = regexp.MustCompile(`(sslrootcert=)/\S+`)

// TestDocumentedConfirmation: --help and the page of replay have the number of rows above which it asks.
func TestDocumentedConfirmation(t *testing.T) {
	page, err := os.ReadFile("../../docs/resend.md")
	if err != nil {
		t.Fatal(err)
	}
	help := new(app).replay().Flags().Lookup("yes").Usage
	want := fmt.Sprintf("more than %d rows", askAbove)
	if !strings.Contains(string(page), want) || !strings.Contains(help, want) {
		t.Errorf("%q is not in docs/resend.md, or not in --help: %s", want, help)
	}
}

// Every piece of configuration on a page is valid.
func TestDocumentedConfiguration(t *testing.T) {
	authority := certtest.New()
	found := 0
	for _, page := range documents(t) {
		for _, b := range page.blocks {
			if b.lang != "yaml" {
				continue
			}
			found++
			dir := t.TempDir()
			file, secret, signing, ca := filepath.Join(dir, "outbox-cdc.yaml"), filepath.Join(dir, "secret"), filepath.Join(dir, "signing"), filepath.Join(dir, "ca.pem")
			text := secretFile.ReplaceAllString(b.text, "${1}"+secret)
			text = strings.ReplaceAll(text, "signing_secrets_file: "+secret, "signing_secrets_file: "+signing)
			text = strings.ReplaceAll(text, "ca_file: "+secret, "ca_file: "+ca)
			text = rootFile.ReplaceAllString(text, "${1}"+ca)
			for path, content := range map[string]string{file: text, secret: "a=b", ca: string(authority.PEM()), signing: "whsec_" + strings.Repeat("MfKQ", 8)} {
				if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := config.Load(config.Sources{File: file}); err != nil {
				t.Errorf("%s: %v\n%s", page.name, err, b.text)
			}
		}
	}
	if found < 2 {
		t.Errorf("only %d pieces were found", found)
	}
}

// A document is a page with its blocks of code and its code within text.
type document struct {
	name   string
	blocks []fenced
	spans  []string // code within text
}

// A fenced is a block of code.
type fenced struct{ lang, text string }

// tried reports whether TestOperations runs all blocks of the page.
func (d document) tried() bool {
	return slices.Contains(doctest.FollowedPages(), path.Base(d.name))
}

var (
	fence    = regexp.MustCompile("(?ms)^ *```([a-z]*)\n(.*?)^ *```$")
	codeSpan = regexp.MustCompile("`([^`\n]+)`")
)

// documents returns all pages of the repository except the changelog, which may mention removed commands.
func documents(t *testing.T) []document {
	t.Helper()
	const root = "../.."
	var all []document
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (slices.Contains([]string{"testdata", "bin"}, d.Name()) || strings.HasPrefix(d.Name(), ".") && path != root):
			return filepath.SkipDir
		case filepath.Ext(path) != ".md" || d.Name() == "CHANGELOG.md":
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		page := document{name: filepath.ToSlash(name)}
		for _, m := range fence.FindAllSubmatch(text, -1) {
			page.blocks = append(page.blocks, fenced{string(m[1]), string(m[2])})
		}
		for _, m := range codeSpan.FindAllSubmatch(fence.ReplaceAll(text, nil), -1) {
			page.spans = append(page.spans, string(m[1]))
		}
		all = append(all, page)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 15 {
		t.Errorf("only %d pages", len(all))
	}
	return all
}

var heredoc = regexp.MustCompile(`<<'?([A-Z]+)'?$`)

// commands returns the command lines of a block. It joins continued lines, and leaves out comments and
// here-documents.
func commands(text string) []string {
	var all []string
	var continued, end string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if end != "" {
			if line == end {
				end = ""
			}
			continue
		}
		line, _, _ = strings.Cut(line, " #")
		line = continued + strings.TrimSpace(line)
		if before, ok := strings.CutSuffix(line, `\`); ok {
			continued = before
			continue
		}
		continued = ""
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		all = append(all, line)
		if m := heredoc.FindStringSubmatch(line); m != nil {
			end = m[1]
		}
	}
	return all
}

var (
	// program matches the start of one of our commands, at the beginning of a line or after a separator.
	program = regexp.MustCompile(`(?:^|\$\(|\| |; |&& |go run )(?:\S*/)?(?:(outbox-cdc) ([a-z].*)|(outbox-cdc-demo|outbox-cdc-bench)((?: .*)?)$)`)
	ends    = []string{"|", ">", "&", ";", ")"}
	word    = regexp.MustCompile(`"([^"]*)"|'([^']*)'|[^\s"'|>&;)]+|[|>&;)]`)
)

// programs returns each of our commands in a line, with its arguments.
func programs(line string) [][]string {
	var all [][]string
	for line != "" {
		m := program.FindStringSubmatch(line)
		if m == nil {
			break
		}
		args := []string{m[1] + m[3]}
		line = m[2] + m[4]
		for _, w := range word.FindAllString(line, -1) {
			if slices.Contains(ends, w) {
				break
			}
			switch {
			case w[0] == '"':
				args = append(args, strings.ReplaceAll(strings.Trim(w, `"`), "$", ""))
			case w[0] == '\'':
				args = append(args, strings.Trim(w, "'"))
			case w[0] != '$' && w != "…":
				args = append(args, w)
			}
		}
		all = append(all, args)
	}
	return all
}

// commandLine returns the command line of one of our programs.
func commandLine(program string) *cobra.Command {
	switch program {
	case "outbox-cdc-demo":
		return demo.Command(nil, io.Discard, io.Discard)
	case "outbox-cdc-bench":
		return bench.Command(nil, io.Discard, io.Discard)
	}
	return (&app{stdout: io.Discard, stderr: io.Discard}).root()
}

// parses returns what is wrong with a command line, or nil. In text, a command may leave out arguments and values.
func parses(args []string, whole bool) error {
	root := commandLine(args[0])
	args = args[1:]
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd(args...)
	cmd, rest, err := root.Find(args)
	if err != nil {
		return err
	}
	cmd.InitDefaultHelpFlag()
	if cmd == root && !root.Runnable() {
		return errors.New("there is no such command")
	}
	if !whole {
		for _, arg := range rest {
			name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
			if strings.HasPrefix(arg, "--") && cmd.Flag(name) == nil {
				return fmt.Errorf("it has no flag --%s", name)
			}
		}
		return nil
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	if !cmd.Runnable() {
		return errors.New("it takes a subcommand")
	}
	if cmd.Args != nil {
		return cmd.Args(cmd, cmd.Flags().Args())
	}
	return nil
}
