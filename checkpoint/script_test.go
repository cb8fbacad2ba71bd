package checkpoint

import (
	"flag"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pglogrepl"
)

var updateFlag = flag.Bool("update", false, "rewrite the right side of testdata/*.txt")

// TestTrackerFollowsScripts plays testdata/*.txt. A line has an operation, and right of the bar the
// state of the Tracker after it:
//
//	start LSN | resume COMMIT-LSN ROWS | begin COMMIT-LSN | next [N [ROW]] | cancel | commit END-LSN |
//	keepalive LSN | ack SEQ|FIRST-LAST ... | locate SEQ | reread
//
// The bytes of a row are ROW, or "row" without it. next N stops at an error.
func TestTrackerFollowsScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := playScript(t, string(want))
			if *updateFlag {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// playScript returns the script with the actual states.
func playScript(t *testing.T, script string) string {
	t.Helper()
	var out strings.Builder
	tracker := New(0, nil)
	for line := range strings.Lines(script) {
		op, _, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "|")
		op = strings.TrimRight(op, " ")
		if op == "" || op[0] == '#' {
			fmt.Fprintln(&out, strings.TrimSuffix(line, "\n"))
			continue
		}
		words := strings.Fields(op)
		if words[0] == "start" {
			tracker = New(parseLSN(t, words[1]), nil)
		}
		fmt.Fprintf(&out, "%-20s | %s\n", op, playLine(t, tracker, words))
	}
	return out.String()
}

func playLine(t *testing.T, tracker *Tracker, words []string) (answer string) {
	t.Helper()
	defer func() {
		if r := recover(); r != nil {
			answer = fmt.Sprint("panic: ", r)
		}
	}()
	op, args := words[0], words[1:]
	var err error
	switch op {
	case "start":
	case "begin":
		at := time.Time{}
		if len(args) == 2 { // otherwise unknown
			at = time.Unix(int64(parseCount(t, args[1:])), 0)
		}
		err = tracker.Begin(parseLSN(t, args[0]), at)
	case "resume":
		p := Prefix{CommitLSN: parseLSN(t, args[0]), Rows: int64(parseCount(t, args[1:]))}
		p.CRC = crc32.Checksum([]byte(strings.Repeat("row", int(p.Rows))), castagnoli)
		tracker.Resume(p)
	case "next":
		row := "row"
		if len(args) == 2 {
			row = args[1]
		}
		for range parseCount(t, args) {
			if _, err = tracker.Next([]byte(row)); err != nil {
				break
			}
		}
	case "note":
		tracker.Note()
	case "cancel":
		tracker.Cancel()
	case "commit":
		err = tracker.Commit(parseLSN(t, args[0]))
	case "keepalive":
		err = tracker.Keepalive(parseLSN(t, args[0]))
	case "recall":
		tracker.Recall(Landmark{parseLSN(t, args[0]), int64(parseCount(t, args[1:])) * 1_000_000})
	case "reread":
		from := pglogrepl.LSN(0)
		if len(args) == 1 {
			from = parseLSN(t, args[0])
		}
		tracker.Reread(from)
	case "ack":
		err = tracker.Ack(parseSeqs(t, args)...)
	case "locate":
		lsn, index, ok := tracker.Locate(Seq(parseCount(t, args)))
		if !ok {
			return "not outstanding"
		}
		return fmt.Sprintf("%s#%d", lsn, index)
	default:
		t.Fatalf("unknown operation %q", op)
	}
	if err != nil {
		return "error: " + err.Error()
	}
	return printState(tracker)
}

func printState(tracker *Tracker) string {
	state := "confirmed " + tracker.Confirmed().String()
	if n := tracker.Window(); n > 0 {
		state += fmt.Sprintf(", %d of %d outstanding", tracker.Outstanding(), n)
	}
	if _, last := tracker.Passed(); last.Micros != 0 {
		state += " after " + last.String()
	}
	if tracker.seenAgain.from != 0 && tracker.Recognized() {
		state += ", recognized"
	}
	if lsn, acked, ok := tracker.OpenTransaction(); ok {
		state += fmt.Sprintf(", %s open, %d acknowledged", lsn, acked)
	}
	if p := tracker.Prefix(); p != (Prefix{}) {
		state += fmt.Sprintf(", %d rows of %s", p.Rows, p.CommitLSN)
		if p.CRC != crc32.Checksum([]byte(strings.Repeat("row", int(p.Rows))), castagnoli) {
			state += ", other ones"
		}
	}
	return state
}

func parseLSN(t *testing.T, s string) pglogrepl.LSN {
	t.Helper()
	lsn, err := pglogrepl.ParseLSN(s)
	if err != nil {
		t.Fatal(err)
	}
	return lsn
}

func parseCount(t *testing.T, args []string) int {
	t.Helper()
	if len(args) == 0 {
		return 1
	}
	n, err := strconv.Atoi(args[0])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func parseSeqs(t *testing.T, args []string) (seqs []Seq) {
	t.Helper()
	for _, arg := range args {
		first, last, isRange := strings.Cut(arg, "-")
		if !isRange {
			last = first
		}
		for n := parseCount(t, []string{first}); n <= parseCount(t, []string{last}); n++ {
			seqs = append(seqs, Seq(n))
		}
	}
	return seqs
}
