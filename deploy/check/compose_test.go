package check

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
)

// Compose's own loader accepts the file. All references between services resolve, and every file that it names
// exists.
func TestCompose(t *testing.T) {
	options, err := cli.NewProjectOptions([]string{"../compose.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"postgres", "kafka", "migrate", "setup", "relay", "orders"} {
		if _, err := project.GetService(name); err != nil {
			t.Error(err)
		}
	}
	for name, s := range project.Services {
		job := name == "migrate" || name == "setup"
		if check := s.HealthCheck; job && (check == nil || !check.Disable) || name == "relay" && (check == nil || check.Disable) {
			t.Errorf("%s: health check %+v", name, check)
		}
		if s.Build != nil {
			if s.User != "" || !s.ReadOnly || len(s.CapDrop) == 0 || len(s.SecurityOpt) == 0 {
				t.Errorf("%s: want the image's user, a read-only root and no capabilities", s.Name)
			}
			exists(t, s.Build.Context, s.Build.Dockerfile)
		}
		for _, v := range s.Volumes {
			if v.Type == "bind" {
				exists(t, v.Source)
			}
		}
		for _, p := range s.Ports {
			if p.HostIP != "127.0.0.1" {
				t.Errorf("%s: port %s is open to the network", s.Name, p.Published)
			}
		}
	}
}

func exists(t *testing.T, path ...string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(path...)); err != nil {
		t.Error(err)
	}
}
