package filestore

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// version is the version of the format.
const version = 1

// A contents is what a file has, as JSON.
type contents struct {
	Version int               `json:"version"`
	Relays  map[string]*relay `json:"relays"` // by name
}

// A relay has the values of a relay, in the order in which they were stored.
type relay struct {
	Owner  string  `json:"owner,omitempty"` // UUID of the newest owner
	Values []value `json:"values"`
}

type value struct {
	Key   string `json:"key"`
	Value []byte `json:"value"`
}

// replace replaces the value of a key, or removes it if to is nil.
func (r *relay) replace(key string, to []byte) {
	r.Values = slices.DeleteFunc(r.Values, func(v value) bool { return v.Key == key })
	if to != nil {
		r.Values = append(r.Values, value{Key: key, Value: to})
	}
}

// of returns what the file has of a relay.
func (c *contents) of(name string) *relay {
	if c.Relays[name] == nil {
		c.Relays[name] = new(relay)
	}
	return c.Relays[name]
}

// stored returns what place, which has c, has for the relay called name: see [sink.PositionStore].
func (c *contents) stored(name, place string) []sink.StoredValue {
	var stored, others []sink.StoredValue
	for _, of := range slices.Sorted(maps.Keys(c.Relays)) {
		for _, v := range c.Relays[of].Values {
			value := sink.StoredValue{Key: v.Key, Value: v.Value, Place: place}
			switch {
			case of == name:
				stored = append(stored, value)
			case v.Key == sink.PositionKey:
				value.Other = of
				others = append(others, value)
			}
		}
	}
	return append(stored, others...)
}

// readFile returns the contents of a file, empty if it does not exist. A file is complete, because writeFile renames it.
func readFile(path string) (contents, error) {
	var c contents
	data, err := os.ReadFile(path) //nolint:gosec // which file is the operator's choice
	if errors.Is(err, fs.ErrNotExist) {
		return contents{Version: version, Relays: make(map[string]*relay)}, nil
	}
	if err != nil {
		return c, err
	}
	if err := json.Unmarshal(data, &c); err != nil || c.Version != version || c.Relays == nil {
		return c, fmt.Errorf("%w: position file %s is damaged, or of a newer version of the relay. Restore it from a backup, or move it away: "+
			"the relay then starts without a stored position", sink.ErrFatal, path)
	}
	return c, nil
}

// writeFile replaces a file. It returns when the new one is on disk.
func writeFile(path string, c contents) error {
	data, err := json.Marshal(c)
	if err != nil {
		return err
	}
	next := path + newSuffix // the lock is held, so nobody else writes it
	if err := writeSynced(next, data); err != nil {
		return err
	}
	if err := os.Rename(next, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func writeSynced(path string, data []byte) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600) //nolint:gosec // as above
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.Write(data); err != nil {
		return err
	}
	return f.Sync()
}

// syncDir makes a rename in dir durable.
func syncDir(dir string) (err error) {
	d, err := os.Open(dir) //nolint:gosec // as above
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	return d.Sync()
}
