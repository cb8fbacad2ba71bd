//go:build !unix

package position

import "context"

// lock does nothing: only one process may use the file.
func lock(context.Context, string) (unlock func(), err error) { return func() {}, nil }
