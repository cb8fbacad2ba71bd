package check

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

const chartDir = "../helm/outbox-cdc"

// values parses values of the chart.
func values(t *testing.T, text string) map[string]any {
	t.Helper()
	out := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// render renders the chart as helm install does. It returns the notes separately.
func render(t *testing.T, release string, values map[string]any) (files map[string]string, notes string, err error) {
	t.Helper()
	chart, err := loader.Load(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	options := chartutil.ReleaseOptions{Name: release, Namespace: "shop", Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(chart, values, options, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, "", err
	}
	if files, err = engine.Render(chart, all); err != nil {
		return nil, "", err
	}
	for path, text := range files {
		switch {
		case strings.HasSuffix(path, "NOTES.txt"):
			notes = text
		case strings.TrimSpace(text) != "":
			continue
		}
		delete(files, path)
	}
	return files, notes, nil
}

// chart returns the objects that the chart creates with these values. It fails unless exactly the absent kinds are
// missing.
func chart(t *testing.T, release, text string, absent ...string) (m *manifests, notes string) {
	t.Helper()
	files, notes, err := render(t, release, values(t, text))
	if err != nil {
		t.Fatal(err)
	}
	m = new(manifests)
	kinds := m.kinds()
	for path, text := range files {
		decode(t, kinds, path, []byte(text))
	}
	requireKinds(t, kinds, append(absent, "Secret", "CronJob")...)
	return m, notes
}

// helm lint accepts the chart, with the default values and with all values.
func TestChartLints(t *testing.T) {
	for name, text := range map[string]string{"default": "", "full": string(read(t, "testdata/helm-full.yaml"))} {
		for _, m := range lint.All(chartDir, values(t, text), "shop", true).Messages {
			if m.Severity >= support.WarningSev {
				t.Errorf("%s values: %v", name, m)
			}
		}
	}
}

// With the default values, the objects refer to each other, and the relays are a pair that survives the loss of a
// node.
func TestChart(t *testing.T) {
	m, notes := chart(t, "outbox-cdc", "", "ServiceMonitor")
	d := m.deployment.Spec
	pod := d.Template.Spec
	m.checkSelectors(t)
	m.checkPorts(t)
	m.checkPod(t, &pod, "outbox-cdc")
	if result := restricted(t, &d.Template); !result.Allowed {
		t.Error(result.ForbiddenDetail())
	}
	if u := d.Strategy.RollingUpdate; *d.Replicas != 2 || d.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType || u.MaxUnavailable.IntValue() != 0 {
		t.Errorf("%d replicas, %+v", *d.Replicas, d.Strategy)
	}
	if m.budget.Spec.MaxUnavailable.IntValue() != 1 || *pod.TerminationGracePeriodSeconds != 40 {
		t.Errorf("budget %v, grace period %d s", m.budget.Spec.MaxUnavailable, *pod.TerminationGracePeriodSeconds)
	}
	if len(pod.TopologySpreadConstraints) != 2 || pod.TopologySpreadConstraints[0].TopologyKey != corev1.LabelHostname {
		t.Errorf("spread: %+v", pod.TopologySpreadConstraints)
	}
	for _, want := range []string{"--namespace shop rollout status deployment/outbox-cdc\n", "port-forward deployment/outbox-cdc 9187"} {
		if !strings.Contains(notes, want) {
			t.Errorf("the notes lack %q:\n%s", want, notes)
		}
	}
}

// The chart and the plain manifests run the relay in the same way.
func TestChartIsLikeTheManifests(t *testing.T) {
	plain := load(t).deployment.Spec.Template.Spec
	m, _ := chart(t, "outbox-cdc", "", "ServiceMonitor")
	helm := m.deployment.Spec.Template.Spec
	helm.TopologySpreadConstraints = nil
	helm.Containers[0].ImagePullPolicy = ""
	helm.Volumes[1].Name, helm.Containers[0].VolumeMounts[1].Name = "secrets", "secrets"
	if !reflect.DeepEqual(plain, helm) {
		t.Errorf("plain:\n%+v\nchart:\n%+v", plain, helm)
	}
}

// Every value has an effect.
func TestChartWithAllValues(t *testing.T) {
	text := string(read(t, "testdata/helm-full.yaml"))
	m, _ := chart(t, "shop", text)
	d := m.deployment.Spec
	pod := d.Template.Spec
	m.checkSelectors(t)
	m.checkPorts(t)
	m.checkPod(t, &pod, "postgres", "kafka")
	if result := restricted(t, &d.Template); !result.Allowed {
		t.Error(result.ForbiddenDetail())
	}
	relay := pod.Containers[0]
	for what, ok := range map[string]bool{
		"names":            m.deployment.Name == "shop-outbox-cdc" && m.service.Name == m.deployment.Name && m.account.Name == "relay",
		"replicas":         *d.Replicas == 3,
		"image":            strings.HasPrefix(relay.Image, "registry.example.org/relay@sha256:") && relay.ImagePullPolicy == corev1.PullAlways,
		"imagePullSecrets": pod.ImagePullSecrets[0].Name == "registry",
		"port":             relay.Ports[0].ContainerPort == 9200 && m.service.Spec.Ports[0].Port == 9200,
		"drain_timeout":    *pod.TerminationGracePeriodSeconds == 76,
		"secrets":          relay.VolumeMounts[2].MountPath == "/run/secrets/kafka" && pod.Volumes[2].Secret.SecretName == "kafka",
		"env":              relay.Env[0].ValueFrom.SecretKeyRef.Name == "kafka",
		"resources":        relay.Resources.Limits.Memory().String() == "1Gi" && relay.Resources.Requests.Cpu().String() == "1",
		"spread":           len(pod.TopologySpreadConstraints) == 1 && pod.TopologySpreadConstraints[0].TopologyKey == "topology.kubernetes.io/region",
		"scheduling":       pod.NodeSelector["disk"] == "ssd" && pod.Tolerations[0].Key == "dedicated" && pod.Affinity.NodeAffinity != nil && pod.PriorityClassName == "high",
		"podAnnotations":   d.Template.Annotations["example.org/team"] == "orders",
		"podLabels":        d.Template.Labels["team"] == "orders",
		"serviceAccount":   strings.HasPrefix(m.account.Annotations["eks.amazonaws.com/role-arn"], "arn:"),
		"serviceMonitor":   m.monitor.Labels["release"] == "prometheus" && m.monitor.Spec.Endpoints[0].Interval == "30s",
	} {
		if !ok {
			t.Errorf("%s has no effect", what)
		}
	}
	// The alerts select the job outbox-cdc.
	if job := m.service.Labels[m.monitor.Spec.JobLabel]; job != "outbox-cdc" || m.monitor.Spec.Endpoints[0].Port != m.service.Spec.Ports[0].Name {
		t.Errorf("the job is %q", job)
	}
	other, _ := chart(t, "shop", strings.Replace(text, "slot: orders", "slot: other", 1))
	if other.deployment.Spec.Template.Annotations["checksum/config"] == d.Template.Annotations["checksum/config"] {
		t.Error("a changed configuration does not restart the pods")
	}
}

// helm install rejects mistakes in the values before it creates anything.
func TestChartRejectsMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"replica: 2":     "replica",
		"replicas: 0":    "replicas",
		"secrets: [A_b]": "secrets",
		"config: {admin: {listen: 127.0.0.1:9187}}":    "listen",
		"config: {drain_timeout: 25}":                  "drain_timeout",
		"image: {digest: latest}":                      "digest",
		"serviceMonitor: {enabled: true, interval: x}": "interval",
	} {
		if _, _, err := render(t, "outbox-cdc", values(t, text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// guideValues returns the values from the guide.
func guideValues(t *testing.T) string {
	t.Helper()
	_, text, found := strings.Cut(string(read(t, "../../docs/deploying.md")), "cat >my-values.yaml <<'END'\n")
	text, _, ends := strings.Cut(text, "\nEND\n")
	if !found || !ends {
		t.Fatal("the guide has no values")
	}
	return text
}

// The relay accepts the configuration from the ConfigMap, with the files from the Secrets.
func TestChartConfiguration(t *testing.T) {
	dir := t.TempDir()
	relay := filepath.Join(dir, "outbox-cdc")
	run(t, "go", "-C", "../..", "build", "-o", relay, "./cmd/outbox-cdc")
	full, _ := chart(t, "shop", string(read(t, "testdata/helm-full.yaml")))
	standard, _ := chart(t, "outbox-cdc", "", "ServiceMonitor")
	guide, _ := chart(t, "outbox-cdc", guideValues(t), "ServiceMonitor")
	for name, m := range map[string]*manifests{"default": standard, "full": full, "guide": guide} {
		text := m.config.Data["outbox-cdc.yaml"]
		for _, file := range regexp.MustCompile(`/run/secrets/\S+`).FindAllString(text, -1) {
			local := filepath.Join(dir, name, file)
			write(t, local, "postgres://cdc:secret@db.example.com/app")
			text = strings.ReplaceAll(text, file, local)
		}
		path := filepath.Join(dir, name, "outbox-cdc.yaml")
		write(t, path, text)
		run(t, relay, "config", "-c", path)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
