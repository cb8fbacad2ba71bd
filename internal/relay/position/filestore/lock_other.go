//go:build !unix

package filestore

import "context"

// lock does nothing: only one process may use the file.
func lock(context.Context, string) (unlock func(), err error) { return func() {}, nil }
