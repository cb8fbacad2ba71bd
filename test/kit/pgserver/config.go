package pgserver

import "io"

// Config says which server Start runs. Its zero value is a good one.
type Config struct {
	// BinDir is the directory of initdb and postgres. Empty: see the package
	// comment.
	BinDir string
	// Major is the wanted major version when BinDir is empty. Zero: any that
	// is installed, else the newest that can be fetched.
	Major int
	// Settings are configuration parameters, written to postgresql.conf after
	// ours; "fsync": "on" makes the data safe.
	Settings map[string]string
	// Data, if not nil, makes the data directory in place of initdb: it fills dir,
	// which does not exist yet, with a copy of another server's.
	Data func(dir string) error
	// log receives what the server and initdb write. Nil: only LogTail does.
	log io.Writer
	// Progress, if not nil, is called while programs are fetched.
	Progress func(Progress)
}

// A Progress says how far a fetch is.
type Progress struct {
	Bytes     int64 // received so far
	Total     int64 // to be received; 0 while unknown
	Unpacking bool  // everything has been received and is now unpacked and tried
}
