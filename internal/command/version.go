package command

import (
	"regexp"
	"runtime/debug"
)

// A Build is the version of this binary.
type Build struct {
	Module   string // the module's version; "(devel)" if unknown
	Revision string // Git commit; empty if unknown
	Time     string // of the commit
	Modified bool   // built with uncommitted changes
}

// Version returns the Build of this binary.
func Version() Build {
	b := Build{Module: "(devel)"}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if info.Main.Version != "" {
		b.Module = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// release matches the version of a release, which is also its Git tag.
var release = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z]+(\.[0-9]+)?)?$`)

// Docs returns the address of the documentation of this version.
func (b Build) Docs() string {
	of := "main"
	switch {
	case release.MatchString(b.Module):
		of = b.Module
	case b.Revision != "":
		of = b.Revision
	}
	return "https://github.com/outbox-cdc/outbox-cdc/blob/" + of + "/docs"
}
