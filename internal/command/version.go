package command

import "runtime/debug"

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
