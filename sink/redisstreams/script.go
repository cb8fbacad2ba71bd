package redisstreams

import (
	_ "embed" // the scripts
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed append.lua
var appendSource string

//go:embed position.lua
var positionSource string

var (
	appendScript   = newScript(appendSource)   //nolint:gochecknoglobals // a constant
	positionScript = newScript(positionSource) //nolint:gochecknoglobals // a constant
)

// newScript returns the script without its comments and indentation, which every EVAL would send.
func newScript(source string) *redis.Script {
	var short strings.Builder
	for line := range strings.Lines(source) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "--") {
			short.WriteString(line)
			short.WriteByte('\n')
		}
	}
	return redis.NewScript(short.String())
}
