package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

// private mounts a temporary /etc, /usr and /run for the commands after it. Changes stay in memory.
const private = `
	mount -t tmpfs tmpfs /mnt
	for d in etc usr; do
		mkdir -p /mnt/$d/upper /mnt/$d/work
		mount -t overlay overlay -o "lowerdir=/$d,upperdir=/mnt/$d/upper,workdir=/mnt/$d/work" "/$d"
	done
	mount -t tmpfs tmpfs /run
	sudo() { "$@"; }`

// whatIsThere is a script that checks the result of the guide.
const whatIsThere = `
	systemd-analyze verify --man=no outbox-cdc.service outbox-cdc-prune.timer
	echo 'postgres://cdc:change-me@db.example.com/app' >/etc/outbox-cdc/dsn
	echo change-me >/etc/outbox-cdc/kafka-password
	as() { setpriv --reuid="$1" --regid="$1" --clear-groups --no-new-privs sh -c "$2"; }
	as outbox-cdc 'outbox-cdc config -c /etc/outbox-cdc/outbox-cdc.yaml'
	as outbox-cdc 'cat /etc/outbox-cdc/dsn /etc/outbox-cdc/kafka-password'
	echo 'postgres://outbox_operator:change-me@db.example.com/app' >/etc/outbox-cdc/prune-dsn
	as outbox-cdc 'env $(sed -n s/^Environment=//p /etc/systemd/system/outbox-cdc-prune.service) outbox-cdc config -c /etc/outbox-cdc/outbox-cdc.yaml'
	if as outbox-cdc 'echo >>/etc/outbox-cdc/dsn' 2>/dev/null; then echo 'the relay can write to its secrets'; exit 1; fi
	if as 65534 'cat /etc/outbox-cdc/dsn' 2>/dev/null; then echo 'others can read the secrets'; exit 1; fi`

// TestGuideToSystemd runs the commands for systemd in docs/deploying.md and docs/prune.md, up to those that need a
// running systemd.
func TestGuideToSystemd(t *testing.T) {
	if os.Geteuid() != 0 {
		need.Missing(t, "to have an /etc of its own takes root")
	}
	commands := guide(t, "deploying.md", "systemd") + guide(t, "prune.md", "Prune daily")
	// root is like the unpacked archive: the binary, and the files of deploy.
	root := build(t, "../Dockerfile")
	must(t, os.Mkdir(filepath.Join(root, "bin"), 0o700))
	must(t, os.Rename(filepath.Join(root, "outbox-cdc"), filepath.Join(root, "bin/outbox-cdc")))
	must(t, os.CopyFS(filepath.Join(root, "deploy/systemd"), os.DirFS("systemd")))

	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "bash", "-euc", private+"\n"+commands+whatIsThere)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "publication: outbox_cdc") || !strings.Contains(string(out), "postgres://cdc:change-me@") ||
		!strings.Contains(string(out), "/etc/outbox-cdc/prune-dsn") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestGuideToTheDatabase runs the commands that prepare the database. The slot must exist afterwards.
func TestGuideToTheDatabase(t *testing.T) {
	root, db := build(t, "../Dockerfile"), pgtest.Database(t)
	cmd := exec.CommandContext(t.Context(), "bash", "-euc", guide(t, "deploying.md", "Prepare the database"))
	cmd.Env = []string{"OWNER_DSN=" + db.DSN, "PATH=" + root + ":" + os.Getenv("PATH")}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !pgtest.QueryRow[bool](t, db, `SELECT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = 'outbox_cdc' AND database = current_database())`) {
		t.Error("the slot does not exist")
	}
}

// guide returns the first commands of a chapter of a page.
func guide(t *testing.T, page, chapter string) string {
	t.Helper()
	_, text, _ := strings.Cut(read(t, "../docs/"+page), "\n## "+chapter+"\n")
	block := regexp.MustCompile("(?s)```sh\n(.*?)```").FindStringSubmatch(text)
	if block == nil {
		t.Fatalf("%s has no commands under %q", page, chapter)
	}
	return block[1]
}
