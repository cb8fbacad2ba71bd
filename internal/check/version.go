package check

import "fmt"

// oldest is the oldest supported version.
const oldest = 140000

// A release fixed bugs that can make logical decoding lose changes or stop.
type release struct {
	minors map[int]int // first minor release of each major version with the fixes
	broken string      // what can happen in earlier ones
}

// releases returns such releases, the most important first.
func releases() []release {
	return []release{
		// https://www.postgresql.org/docs/release/17.5/ and those of the same day: "Avoid data loss when
		// DDL operations that don't take a strong lock affect tables that are being logically replicated".
		{map[int]int{14: 18, 15: 13, 16: 9, 17: 5}, "if others write at the same time, ALTER PUBLICATION and other DDL can make decoding use an old catalog, and changes are lost"},
		// https://www.postgresql.org/docs/release/17.6/ and those of the same day: "Avoid re-distributing
		// cache invalidation messages", "Avoid premature removal of old WAL during checkpoints", "Never
		// move a replication slot's confirmed-flush position backwards".
		{map[int]int{14: 19, 15: 14, 16: 10, 17: 6}, "a crash after a checkpoint can leave a slot without WAL that it needs, a slot's confirmed position can go back, and concurrent DDL can exhaust the memory of decoding"},
	}
}

func (s *sourceChecker) version() {
	c := s.catalog
	major, minor := c.ServerVersion/10000, c.ServerVersion%10000
	text := fmt.Sprintf("PostgreSQL %d.%d", major, minor)
	if c.ServerVersion < oldest {
		s.fail("version", "", text, fmt.Sprintf("upgrade to PostgreSQL %d or later", oldest/10000))
		return
	}
	s.ok("version", "", text)
	s.minor(major, minor)
	s.settings()
}

func (s *sourceChecker) minor(major, minor int) {
	broken, fixed := behind(major, minor)
	if broken == "" {
		s.ok("minor release", "", "no known bug that loses or stops decoded changes")
		return
	}
	s.warn("minor release", "", fmt.Sprintf("%d.%d: %s", major, minor, broken),
		fmt.Sprintf("update to PostgreSQL %d.%d or later (https://www.postgresql.org/docs/release/%d.%d/)", major, fixed, major, fixed))
}

// behind returns the bugs of a minor release, and the first minor release that fixes all of them.
func behind(major, minor int) (broken string, fixed int) {
	for _, r := range releases() {
		first, ok := r.minors[major]
		if !ok || minor >= first {
			continue
		}
		if broken == "" {
			broken = r.broken
		}
		fixed = first
	}
	return broken, fixed
}

// settings checks the settings that logical decoding needs.
func (s *sourceChecker) settings() {
	c := s.catalog
	switch {
	case !c.Decodes():
		s.fail("wal_level", "", c.WALLevel, s.provider.enable())
	case c.WALLevel == "logical":
		s.ok("wal_level", "", c.WALLevel)
	case c.EffectiveWAL == "logical":
		s.ok("wal_level", "", c.WALLevel+", and effective_wal_level is logical while there is a logical slot")
	default:
		s.ok("wal_level", "", c.WALLevel+": Postgres raises it when the slot is created (effective_wal_level)")
	}
	if c.Encoding == "SQL_ASCII" {
		s.fail("encoding", "", c.Encoding+": text cannot be converted to UTF8 reliably", "move the tables to a database with ENCODING 'UTF8'")
	} else {
		s.ok("encoding", "", c.Encoding)
	}
	switch {
	case !c.InRecovery:
		s.ok("primary", "", "the server is the primary")
	case c.ServerVersion < 160000:
		s.fail("primary", "", "the server is a standby, and standbys support logical decoding from PostgreSQL 16 on", "connect to the primary, for instance with target_session_attrs=read-write in source.dsn")
	default:
		s.warn("primary", "", "the server is a standby: Postgres invalidates the slot if it lags and the primary removes rows that it needs", "connect to the primary, for instance with target_session_attrs=read-write in source.dsn")
	}
}
