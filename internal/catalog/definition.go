package catalog

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A definition is what decides whether every row of the outbox tables is published, as texts that one statement, and so one
// snapshot, can compare: [State.Verify] takes several.
type definition struct {
	publication string // its OID and version, and the OIDs of the memberships of its tables and schemas
	parts       string // OID, name and persistence of each part of the outbox tables, and when it came to its schema
	oids        string // of the parts, as an array
}

// definitionSQL selects the columns publication and parts. $3 is the name of the publication, $6 the OIDs of the parts. The memberships of
// schemas are read from pg_depend, because Postgres 14 does not have their catalog.
const definitionSQL = `
	SELECT
		COALESCE((SELECT pg_catalog.concat_ws(' ', p.oid, p.xmin, (
				SELECT pg_catalog.string_agg(r.oid::text, ' ' ORDER BY r.oid) FROM pg_catalog.pg_publication_rel r
				JOIN pg_catalog.pg_class c ON c.oid = r.prrelid WHERE r.prpubid = p.oid), (
				SELECT pg_catalog.string_agg(d.objid::text, ' ' ORDER BY d.objid) FROM pg_catalog.pg_depend d
				WHERE d.classid = pg_catalog.to_regclass('pg_catalog.pg_publication_namespace')
					AND d.refclassid = 'pg_catalog.pg_publication'::regclass AND d.refobjid = p.oid))
			FROM pg_catalog.pg_publication p WHERE p.pubname = $3), '') AS publication,
		COALESCE((SELECT pg_catalog.string_agg(c.oid || ' ' || c.relname || ' ' || c.relpersistence::text || ' ' || ` + selectPlaced + `, ' ' ORDER BY c.oid) FROM pg_catalog.pg_class c
			WHERE c.oid = ANY ($6::oid[]) OR c.oid IN (SELECT inhrelid FROM pg_catalog.pg_inherits WHERE inhparent = ANY ($6::oid[]))), '') AS parts`

// definition returns the definition of c as definitionSQL selects it if nothing has changed.
func (c *State) definition() definition {
	var d definition
	if p := c.Publication; p != nil {
		words := []string{fmt.Sprint(p.oid, " ", p.version)}
		members := slices.SortedFunc(slices.Values(slices.Concat(p.members, p.excepted)), func(a, b member) int { return int(int64(a.oid) - int64(b.oid)) })
		for _, m := range members {
			words = append(words, oid(m.oid))
		}
		for _, membership := range slices.Sorted(maps.Values(p.schemas)) {
			words = append(words, oid(membership))
		}
		d.publication = strings.Join(words, " ")
	}
	var parts []Part
	for i := range c.Outboxes {
		parts = append(parts, c.Outboxes[i].Parts...)
	}
	slices.SortFunc(parts, func(a, b Part) int { return int(int64(a.OID) - int64(b.OID)) })
	parts = slices.CompactFunc(parts, func(a, b Part) bool { return a.OID == b.OID })
	var texts, oids []string
	for _, p := range parts {
		texts, oids = append(texts, fmt.Sprint(p.OID, " ", p.Name, " ", p.Persistence, " ", p.placed)), append(oids, oid(p.OID))
	}
	d.parts, d.oids = strings.Join(texts, " "), "{"+strings.Join(oids, ",")+"}"
	return d
}
