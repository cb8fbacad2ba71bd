package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// The configuration in the ConfigMap of package deploy is complete, given the files of the Secret.
func TestKubernetesConfiguration(t *testing.T) {
	var manifest struct{ Data map[string]string }
	var secret struct {
		StringData map[string]string `yaml:"stringData"`
	}
	for name, into := range map[string]any{"configmap.yaml": &manifest, "examples/secret.yaml": &secret} {
		if err := yaml.Unmarshal(read(t, "../../deploy/kubernetes/"+name), into); err != nil {
			t.Fatal(err)
		}
	}
	complete(t, manifest.Data["outbox-cdc.yaml"], "/run/secrets/outbox-cdc/", secret.StringData)
}

// The configuration in the systemd guide is complete.
func TestSystemdConfiguration(t *testing.T) {
	const begin = "sudo tee /etc/outbox-cdc/outbox-cdc.yaml >/dev/null <<'END'\n"
	_, text, found := strings.Cut(string(read(t, "../../docs/deploying.md")), begin)
	text, _, ends := strings.Cut(text, "\nEND\n")
	if !found || !ends {
		t.Fatal("the guide has no configuration file")
	}
	complete(t, text, "/etc/outbox-cdc/", map[string]string{"dsn": "postgres://cdc:change-me@db.example.com/app", "kafka-password": "change-me"})
}

// complete fails unless the relay can start with a configuration whose secrets are files in dir.
func complete(t *testing.T, text, dir string, secrets map[string]string) {
	t.Helper()
	cleanEnviron(t)
	tmp := t.TempDir() + "/"
	files := map[string]string{"outbox-cdc.yaml": strings.ReplaceAll(text, dir, tmp)}
	for name, value := range secrets {
		files[name] = value
		if !strings.Contains(text, dir+name) {
			t.Errorf("%s is not used", name)
		}
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(tmp, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg, err := Load(Sources{File: filepath.Join(tmp, "outbox-cdc.yaml")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = cfg.Relay(); err != nil {
		t.Error(err)
	}
	for _, warning := range cfg.Warnings() {
		if !strings.Contains(warning, "the admin server at ") { // expected: Prometheus scrapes it
			t.Errorf("warning: %s", warning)
		}
	}
}
