package check

import "fmt"

// oldest is the first version that is supported.
const oldest = 140000

// A release is one that mended what can make decoding lose or stop.
type release struct {
	minors map[int]int // first minor release of each major version that has it
	broken string      // what can happen before
}

// releases are those that servers may be behind, the gravest first.
func releases() []release {
	return []release{
		// https://www.postgresql.org/docs/release/17.5/ and those of the same day: "Avoid data loss when
		// DDL operations that don't take a strong lock affect tables that are being logically replicated".
		{map[int]int{14: 18, 15: 13, 16: 9, 17: 5}, "while others write, ALTER PUBLICATION and some other DDL make decoding use what the catalog said before: changes are lost"},
		// https://www.postgresql.org/docs/release/17.6/ and those of the same day: "Avoid re-distributing
		// cache invalidation messages", "Avoid premature removal of old WAL during checkpoints", "Never
		// move a replication slot's confirmed-flush position backwards".
		{map[int]int{14: 19, 15: 14, 16: 10, 17: 6}, "a crash just after a checkpoint can leave a slot without log it needs, a slot's position can go back, and concurrent DDL can use up decoding's memory"},
	}
}

func (s *sourceLook) version() {
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

func (s *sourceLook) minor(major, minor int) {
	broken, fixed := behind(major, minor)
	if broken == "" {
		s.ok("minor release", "", "none is known to lose or stop what is decoded")
		return
	}
	s.warn("minor release", "", fmt.Sprintf("%d.%d: %s", major, minor, broken),
		fmt.Sprintf("update to PostgreSQL %d.%d or later (https://www.postgresql.org/docs/release/%d.%d/)", major, fixed, major, fixed))
}

// behind returns what is broken in a minor release, and the first that mends all of it.
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

// settings are those without which nothing can be decoded.
func (s *sourceLook) settings() {
	c := s.catalog
	if c.WALLevel == "logical" {
		s.ok("wal_level", "", c.WALLevel)
	} else {
		s.fail("wal_level", "", c.WALLevel, "ALTER SYSTEM SET wal_level = 'logical', and restart the server")
	}
	if c.Encoding == "SQL_ASCII" {
		s.fail("encoding", "", c.Encoding+": text cannot be converted to UTF8 reliably", "move the tables to a database with ENCODING 'UTF8'")
	} else {
		s.ok("encoding", "", c.Encoding)
	}
	switch {
	case !c.InRecovery:
		s.ok("primary", "", "the server is no standby")
	case c.ServerVersion < 160000:
		s.fail("primary", "", "the server is a standby, which cannot decode before PostgreSQL 16", "connect to the primary: target_session_attrs=read-write in source.dsn finds it")
	default:
		s.warn("primary", "", "the server is a standby: the slot is lost if it lags and the primary removes rows that it needs", "connect to the primary: target_session_attrs=read-write in source.dsn finds it")
	}
}
