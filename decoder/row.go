package decoder

import "slices"

// readInsert, readUpdate and readDelete read a relation OID, then the old and the new
// row, each after a byte that says which one it is.

func (d *Decoder) readInsert(c *cursor) Output {
	r := d.relation(c)
	if marker := c.uint8(); marker != 'N' {
		c.failf("row marker is %q, expected 'N'", marker)
	}
	d.newRow = readRow(c, r, d.newRow)
	d.insert = Insert{Relation: r, Row: d.newRow}
	return &d.insert
}

func (d *Decoder) readUpdate(c *cursor) Output {
	r := d.relation(c)
	d.update = Update{Relation: r}
	marker := c.uint8()
	if old := OldKind(marker); old == OldKey || old == OldRow {
		d.oldRow = readRow(c, r, d.oldRow)
		d.update.OldKind, d.update.Old = old, d.oldRow
		marker = c.uint8()
	}
	if marker != 'N' {
		c.failf("row marker is %q, expected 'N'", marker)
	}
	d.newRow = readRow(c, r, d.newRow)
	d.update.New = d.newRow
	return &d.update
}

func (d *Decoder) readDelete(c *cursor) Output {
	r := d.relation(c)
	old := OldKind(c.uint8())
	if old != OldKey && old != OldRow {
		c.failf("row marker is %q, expected 'K' or 'O'", byte(old))
	}
	d.oldRow = readRow(c, r, d.oldRow)
	d.delete = Delete{Relation: r, OldKind: old, Old: d.oldRow}
	return &d.delete
}

func (d *Decoder) readTruncate(c *cursor) Output {
	n := c.count("relations", 4, 4)
	flags := c.flags(truncateCascade | truncateRestartIdentity)
	d.truncated = d.truncated[:0]
	for range n {
		r := d.relation(c)
		if c.reason != "" {
			break
		}
		d.truncated = append(d.truncated, r)
	}
	d.truncate = Truncate{
		Relations:       d.truncated,
		Cascade:         flags&truncateCascade != 0,
		RestartIdentity: flags&truncateRestartIdentity != 0,
	}
	return &d.truncate
}

// readRow reads a row of r. It reuses the memory of row.
func readRow(c *cursor, r *Relation, row []Value) []Value {
	n := c.count("columns", 2, 1)
	if n != len(r.Columns) {
		c.failf("row has %d columns, its relation has %d", n, len(r.Columns))
		return row[:0]
	}
	row = slices.Grow(row[:0], n)[:n]
	for i := range row {
		kind := Kind(c.uint8())
		row[i] = Value{Kind: kind}
		switch kind {
		case Text, Binary:
			row[i].Data = c.bytes()
		case Null, Unchanged:
		default:
			c.failf("column %s has unknown format %q", r.Columns[i].Name, byte(kind))
			return row[:0]
		}
	}
	return row
}
