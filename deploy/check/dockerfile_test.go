package check

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/moby/buildkit/client/llb/sourceresolver"
	"github.com/moby/buildkit/frontend/dockerfile/dockerfile2llb"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	digest "github.com/opencontainers/go-digest"
	ocispecs "github.com/opencontainers/image-spec/specs-go/v1"
)

// The Dockerfiles compile with Docker's own compiler and pass its linter (docker build --check). Their images are
// from scratch and run as an unprivileged user.
func TestDockerfiles(t *testing.T) {
	for path, entrypoint := range map[string]string{
		"../../Dockerfile":      "/outbox-cdc",
		"../example/Dockerfile": "/orders",
	} {
		result, err := compile(t, path, read(t, path))
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		image := result.Image.Config
		if image.User != "65532:65532" || !slices.Equal(image.Entrypoint, []string{entrypoint}) {
			t.Errorf("%s: user %q, entrypoint %q", path, image.User, image.Entrypoint)
		}
		if check := image.Healthcheck; entrypoint == "/outbox-cdc" && (check == nil || check.Timeout == 0 || check.StartPeriod < 30*time.Second ||
			!slices.Equal(check.Test, []string{"CMD", "/outbox-cdc", "healthcheck"})) {
			t.Errorf("%s: health check %+v", path, check)
		}
		if result.BaseImage != nil {
			t.Errorf("%s: the last stage is not from scratch", path)
		}
	}
}

// compile compiles a Dockerfile, and reports the findings of the linter.
func compile(t *testing.T, path string, text []byte) (*dockerfile2llb.Result, error) {
	t.Helper()
	return dockerfile2llb.Dockerfile2LLB(t.Context(), text, dockerfile2llb.ConvertOpt{
		TargetPlatform: &ocispecs.Platform{OS: "linux", Architecture: "arm64"},
		MetaResolver:   anyImage{},
		Warn: func(rule, _, _, detail string, at []parser.Range) {
			t.Errorf("%s: %s: %s (%v)", path, rule, detail, at)
		},
	})
}

// anyImage resolves every base image, because the test checks the file and needs no registry.
type anyImage struct{}

func (anyImage) ResolveImageConfig(_ context.Context, ref string, _ sourceresolver.Opt) (string, digest.Digest, []byte, error) {
	config, err := json.Marshal(ocispecs.Image{Platform: ocispecs.Platform{OS: "linux", Architecture: "amd64"}})
	return ref, digest.FromBytes(config), config, err
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
