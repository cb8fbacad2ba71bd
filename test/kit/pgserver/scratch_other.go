//go:build unix && !linux

package pgserver

func scratchParent() string { return temporaryParent() }
