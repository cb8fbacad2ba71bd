package deploy

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Alerts and dashboard use existing metrics. Every alert links to its section of the runbook.
func TestMetricNames(t *testing.T) {
	name := regexp.MustCompile(`\boutbox_cdc_[a-z_]+`)
	known := map[string]bool{}
	for _, page := range []string{"../docs/metrics.md", "../docs/inbox-reference.md"} { // generated from the registries
		for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllStringSubmatch(read(t, page), -1) {
			known[row[1]] = true
		}
	}
	asked := map[string]bool{}
	for _, file := range []string{"prometheus/alerts.yaml", "prometheus/alerts_test.yaml", "grafana/dashboard.json"} {
		for _, metric := range name.FindAllString(read(t, file), -1) {
			asked[metric] = true
			if base := strings.TrimSuffix(metric, "_bucket"); !known[base] {
				t.Errorf("%s: there is no %s", file, metric)
			}
		}
	}
	if len(known) < 10 || len(asked) < 10 {
		t.Errorf("%d metrics exist, %d are used", len(known), len(asked))
	}
	page := read(t, "../docs/alerts.md")
	rules := read(t, "prometheus/alerts.yaml")
	alerts := regexp.MustCompile(`(?m)^ +- alert: (\S+)$`).FindAllStringSubmatch(rules, -1)
	for _, alert := range alerts {
		name := alert[1]
		if !strings.Contains(page, "\n## "+name+"\n") {
			t.Errorf("docs/alerts.md has no section %s", name)
		}
		_, rule, _ := strings.Cut(rules, "- alert: "+name+"\n")
		rule, _, _ = strings.Cut(rule, "- alert: ")
		if !strings.Contains(rule, "runbook_url: https://github.com/outbox-cdc/outbox-cdc/blob/main/docs/alerts.md#"+strings.ToLower(name)+"\n") {
			t.Errorf("%s does not link to its section", name)
		}
	}
	if sections := strings.Count(page, "\n## OutboxCDC"); sections != len(alerts) || sections < 10 {
		t.Errorf("%d alerts, and %d sections about alerts", len(alerts), sections)
	}
}

// Images and actions are pinned by digest or commit, because a tag can change. Images that compose.yaml builds have no digest.
func TestOthersArePinned(t *testing.T) {
	workflows, err := filepath.Glob("../.github/workflows/*.yml")
	must(t, err)
	pinned := regexp.MustCompile(`@(sha256:[0-9a-f]{64}|[0-9a-f]{40})$`)
	named := regexp.MustCompile(`(?m)^\s*(?:- )?(?:FROM|uses:|image:) (?:--platform=\S+ )?(\S+)`)
	found := 0
	for _, path := range append(workflows, "../Dockerfile", "example/Dockerfile", "compose.yaml") {
		for _, m := range named.FindAllStringSubmatch(read(t, path), -1) {
			found++
			if !pinned.MatchString(m[1]) && m[1] != "scratch" && m[1] != "outbox-cdc" && m[1] != "outbox-cdc-example" {
				t.Errorf("%s: %s is not pinned", path, m[1])
			}
		}
	}
	if found < 20 {
		t.Errorf("only %d images and actions were found", found)
	}
}

// Releases and images use the same Go version.
func TestOneCompiler(t *testing.T) {
	versions := map[string]string{}
	for path, pattern := range map[string]string{
		"../Dockerfile":                    `golang:([0-9.]+)@`,
		"example/Dockerfile":               `golang:([0-9.]+)@`,
		"../.github/workflows/release.yml": `go-version: (\S+)`,
	} {
		found := regexp.MustCompile(pattern).FindAllStringSubmatch(read(t, path), -1)
		if found == nil {
			t.Fatalf("%s names no version of Go", path)
		}
		for _, m := range found {
			versions[m[1]] = path
		}
	}
	if len(versions) != 1 {
		t.Errorf("Go versions differ: %v", versions)
	}
}

// Manifests, chart and guide name the image and the chart that a release publishes.
func TestPublishedNames(t *testing.T) {
	var workflow struct {
		Jobs map[string]struct{ Env map[string]string }
	}
	readYAML(t, "../.github/workflows/release.yml", &workflow)
	env := workflow.Jobs["image"].Env
	for path, want := range map[string]string{
		"helm/outbox-cdc/values.yaml":    "repository: " + env["IMAGE"] + "\n",
		"kubernetes/deployment.yaml":     "image: " + env["IMAGE"] + ":v",
		"kubernetes/examples/prune.yaml": "image: " + env["IMAGE"] + ":v",
		"../docs/deploying.md":           "helm install outbox-cdc oci://" + env["CHARTS"] + "/outbox-cdc ",
	} {
		if !strings.Contains(read(t, path), want) {
			t.Errorf("%s lacks %q", path, want)
		}
	}
}
