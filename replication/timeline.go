package replication

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
)

// A History maps each ancestor of a timeline to its fork, the position at which the server left it. WAL
// before the fork is the same on both timelines; after it, the same position means different data.
type History map[int32]pglogrepl.LSN

// readHistory reads the history of the server's timeline. It returns nil for the first timeline, and if the
// server no longer has the history file, which it does not need itself.
// https://www.postgresql.org/docs/current/protocol-replication.html#PROTOCOL-REPLICATION-TIMELINE-HISTORY
func readHistory(ctx context.Context, conn *pgconn.PgConn, timeline int32) (History, error) {
	if timeline == 1 {
		return nil, nil
	}
	doing := fmt.Sprintf("read the history of timeline %d", timeline)
	file, err := pglogrepl.TimelineHistory(ctx, conn, timeline)
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == undefinedFile {
		return nil, nil
	}
	if err != nil {
		return nil, wrap(ctx, doing, err, querying)
	}
	h, err := parseHistory(string(file.Content), timeline)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	return h, nil
}

// historyLine matches a line of a history file: timeline, position and reason of the fork.
var historyLine = regexp.MustCompile(`^([0-9]+)\t([0-9A-F]{1,8})/([0-9A-F]{1,8})(\t.*)?$`)

// parseHistory parses the history file of a timeline. Like Postgres, it ignores empty lines and
// comments, and requires the oldest ancestor first.
func parseHistory(content string, timeline int32) (History, error) {
	h := make(History)
	var last int32
	var lastFork pglogrepl.LSN
	for line := range strings.Lines(content) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := historyLine.FindStringSubmatch(line)
		if fields == nil {
			return nil, fmt.Errorf("a line without timeline and position: %q", line)
		}
		ancestor, err := strconv.ParseInt(fields[1], 10, 32)
		if err != nil {
			return nil, fmt.Errorf("a timeline out of range: %q", line)
		}
		high, _ := strconv.ParseUint(fields[2], 16, 32)
		low, _ := strconv.ParseUint(fields[3], 16, 32)
		fork := pglogrepl.LSN(high<<32 | low)
		switch {
		case int32(ancestor) <= last:
			return nil, fmt.Errorf("timeline %d comes after %d", ancestor, last)
		case int32(ancestor) >= timeline:
			return nil, fmt.Errorf("timeline %d cannot be an ancestor", ancestor)
		case fork == 0 || fork < lastFork:
			return nil, fmt.Errorf("timeline %d was left at %s, the one before it at %s", ancestor, fork, lastFork)
		}
		last, lastFork = int32(ancestor), fork
		h[last] = fork
	}
	if len(h) == 0 {
		return nil, errors.New("it has no ancestor")
	}
	return h, nil
}

// start returns where the timeline starts that h is the history of. It returns 0 for the first timeline,
// and if the start is unknown.
func (h History) start() pglogrepl.LSN {
	var start pglogrepl.LSN
	for _, fork := range h {
		start = max(start, fork)
	}
	return start
}
