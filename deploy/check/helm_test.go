package check

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
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

// chart returns the objects that the chart creates with these values. It fails unless exactly the absent ones are missing.
func chart(t *testing.T, release, text string, absent ...string) (m *manifests, notes string) {
	t.Helper()
	files, notes, err := render(t, release, values(t, text))
	if err != nil {
		t.Fatal(err)
	}
	m = new(manifests)
	objects := m.objects()
	for path, text := range files {
		decode(t, objects, path, []byte(text))
	}
	requireAbsent(t, objects, append(absent, "v1 Secret")...)
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
	m, notes := chart(t, "outbox-cdc", "", optional()...)
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
	m, _ := chart(t, "outbox-cdc", "", optional()...)
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
		"volumes":          pod.Volumes[3].PersistentVolumeClaim.ClaimName == "position" && relay.VolumeMounts[3].MountPath == "/var/lib/outbox-cdc",
		"resources":        relay.Resources.Limits.Memory().String() == "1Gi" && relay.Resources.Requests.Cpu().String() == "1",
		"spread":           len(pod.TopologySpreadConstraints) == 1 && pod.TopologySpreadConstraints[0].TopologyKey == "topology.kubernetes.io/region",
		"scheduling":       pod.NodeSelector["disk"] == "ssd" && pod.Tolerations[0].Key == "dedicated" && pod.Affinity.NodeAffinity != nil && pod.PriorityClassName == "high",
		"podAnnotations":   d.Template.Annotations["example.org/team"] == "orders",
		"podLabels":        d.Template.Labels["team"] == "orders",
		"serviceAccount":   strings.HasPrefix(m.account.Annotations["eks.amazonaws.com/role-arn"], "arn:"),
		"serviceMonitor":   m.monitor.Labels["release"] == "prometheus" && m.monitor.Spec.Endpoints[0].Interval == "30s",
		"prometheusRule":   m.rule.Labels["release"] == "prometheus",
		"dashboard":        m.dashboard.Labels["grafana_dashboard"] == "yes" && m.dashboard.Name == "shop-outbox-cdc-dashboard",
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

// The alerts and the dashboard in the cluster are those of deploy/prometheus and deploy/grafana.
func TestChartMonitors(t *testing.T) {
	m, _ := chart(t, "shop", string(read(t, "testdata/helm-full.yaml")))
	var rules monitoringv1.PrometheusRuleSpec
	if err := yaml.UnmarshalStrict(read(t, "../prometheus/alerts.yaml"), &rules); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(m.rule.Spec, rules) || len(rules.Groups) == 0 {
		t.Errorf("the rules differ from alerts.yaml:\n%+v", m.rule.Spec)
	}
	if !bytes.Equal([]byte(m.dashboard.Data["outbox-cdc.json"]), read(t, "../grafana/dashboard.json")) {
		t.Error("the dashboard differs from dashboard.json")
	}
}

// The CronJob prunes like the plain one, in pods that nothing takes for the relay's.
func TestChartPrunes(t *testing.T) {
	m, _ := chart(t, "outbox-cdc", "prune: {enabled: true}", optional("batch/v1 CronJob-prune")...)
	helm := m.prune.Spec
	helm.JobTemplate.Spec.Template.Labels = load(t).prune.Spec.JobTemplate.Spec.Template.Labels
	pod := &helm.JobTemplate.Spec.Template.Spec
	pod.Containers[0].ImagePullPolicy = ""
	pod.Volumes[1].Name, pod.Containers[0].VolumeMounts[1].Name = "secrets", "secrets"
	pod.Volumes[2].Name, pod.Containers[0].VolumeMounts[2].Name = "prune", "prune"
	if plain := load(t).prune.Spec; !reflect.DeepEqual(plain, helm) || m.prune.Name != "outbox-cdc-prune" {
		t.Errorf("plain:\n%+v\nchart:\n%+v", plain, helm)
	}

	m, _ = chart(t, "shop", string(read(t, "testdata/helm-full.yaml")))
	template := m.prune.Spec.JobTemplate.Spec.Template
	m.checkPod(t, &template.Spec, "postgres", "kafka", "pruner")
	m.checkJob(t, &template)
	prune := template.Spec.Containers[0]
	if last := prune.Args[len(prune.Args)-1]; m.prune.Spec.Schedule != "@hourly" || last != "--older-than=72h" || prune.Resources.Limits.Memory().String() != "256Mi" {
		t.Errorf("%q with %+v", m.prune.Spec.Schedule, prune)
	}
}

// The setup runs before anything of the release exists, so it uses nothing of the release but its own configuration.
func TestChartSetsUp(t *testing.T) {
	m, _ := chart(t, "shop", string(read(t, "testdata/helm-full.yaml")))
	template := m.setup.Spec.Template
	m.checkJob(t, &template)
	weight := map[string]string{"config": m.setupConfig.Annotations["helm.sh/hook-weight"], "job": m.setup.Annotations["helm.sh/hook-weight"]}
	if weight["config"] != "-1" || weight["job"] != "0" {
		t.Errorf("the order of the hooks is %v", weight)
	}
	for _, annotations := range []map[string]string{m.setupConfig.Annotations, m.setup.Annotations} {
		if annotations["helm.sh/hook"] != "pre-install,pre-upgrade" {
			t.Errorf("the hook is %q", annotations["helm.sh/hook"])
		}
	}
	before := manifests{config: m.setupConfig, deployment: m.deployment}
	before.checkPod(t, &template.Spec, "postgres", "kafka", "owner")
	if name := template.Spec.ServiceAccountName; name != "" {
		t.Errorf("the setup has the service account %q, which does not exist yet", name)
	}
	migrate, setup := template.Spec.InitContainers[0], template.Spec.Containers[0]
	want := [][]string{
		{"migrate", "up", "-c", "/etc/outbox-cdc/outbox-cdc.yaml", "--only=outbox"},
		{"setup", "-c", "/etc/outbox-cdc/outbox-cdc.yaml", "--grant-operator=outbox_operator"},
	}
	if !reflect.DeepEqual([][]string{migrate.Args, setup.Args}, want) {
		t.Errorf("args %q %q", migrate.Args, setup.Args)
	}
	if !reflect.DeepEqual(m.setupConfig.Data, m.config.Data) {
		t.Error("the setup has another configuration than the relay")
	}
	migrate.Name, migrate.Args = setup.Name, setup.Args
	if !reflect.DeepEqual(migrate, setup) || setup.Env[len(setup.Env)-1].Value != "/run/secrets/owner/dsn" {
		t.Errorf("migrate:\n%+v\nsetup:\n%+v", migrate, setup)
	}
}

// The jobs read the relay's configuration, so they have every file and variable that it may name, and its identity. Only the DSN is their own.
func TestChartJobsHaveTheRelaysFiles(t *testing.T) {
	m, _ := chart(t, "outbox-cdc", `
secrets: [kafka]
env:
  - {name: OUTBOX_CDC_SOURCE_DSN, valueFrom: {secretKeyRef: {name: relay, key: dsn}}}
  - {name: OUTBOX_CDC_SOURCE_DSN_FILE, value: /etc/ca/dsn}
  - {name: OUTBOX_CDC_LOG_LEVEL, value: debug}
volumes:
  - {name: ca, configMap: {name: company-ca}}
  - {name: positions, persistentVolumeClaim: {claimName: positions}}
volumeMounts:
  - {name: ca, mountPath: /etc/ca, readOnly: true}
  - {name: positions, mountPath: /var/lib/outbox-cdc}
prune: {enabled: true}
setup: {enabled: true}
serviceAccount: {create: false, name: company}
`, append(optional("batch/v1 CronJob-prune", "batch/v1 Job-setup", "v1 ConfigMap-setup"), "v1 ServiceAccount")...)
	relay := m.deployment.Spec.Template.Spec
	if len(relay.Containers[0].Env) != 3 {
		t.Errorf("the relay has the variables %+v", relay.Containers[0].Env)
	}
	setup, prune := m.setup.Spec.Template.Spec, m.prune.Spec.JobTemplate.Spec.Template.Spec
	for _, job := range []struct {
		pod       corev1.PodSpec
		container corev1.Container
		secret    string
	}{
		{setup, setup.InitContainers[0], "outbox-cdc-owner"},
		{setup, setup.Containers[0], "outbox-cdc-owner"},
		{prune, prune.Containers[0], "outbox-cdc-prune"},
	} {
		if name := job.pod.ServiceAccountName; name != "company" || name != relay.ServiceAccountName {
			t.Errorf("%s has the service account %q", job.container.Name, name)
		}
		for _, v := range relay.Volumes[1:] { // the first is the configuration
			has := slices.ContainsFunc(job.pod.Volumes, func(have corev1.Volume) bool { return reflect.DeepEqual(have, v) })
			if claim := v.Name == "positions"; has == claim {
				t.Errorf("%s has the volume %s: %t", job.container.Name, v.Name, has)
			}
		}
		for _, v := range relay.Containers[0].VolumeMounts {
			if has, claim := slices.Contains(job.container.VolumeMounts, v), v.Name == "positions"; has == claim {
				t.Errorf("%s has the mount %s: %t", job.container.Name, v.MountPath, has)
			}
		}
		want := []corev1.EnvVar{
			{Name: "OUTBOX_CDC_LOG_LEVEL", Value: "debug"},
			{Name: "OUTBOX_CDC_SOURCE_DSN_FILE", Value: "/run/secrets/" + job.secret + "/dsn"},
		}
		if !reflect.DeepEqual(job.container.Env, want) {
			t.Errorf("%s has the variables %+v", job.container.Name, job.container.Env)
		}
	}
}

// The alert on a prune that fails selects the CronJob of every release, whose name has at most 52 characters.
func TestChartAlertSelectsTheCronJob(t *testing.T) {
	selector := regexp.MustCompile(`cronjob=~"([^"]+)"`).FindSubmatch(read(t, "../prometheus/alerts.yaml"))
	if selector == nil {
		t.Fatal("no alert selects a CronJob")
	}
	names := map[string]string{}
	for _, release := range []string{
		"shop", "outbox-cdc",
		strings.Repeat("a", 34), strings.Repeat("a", 35),
		"orders-of-the-shop-in-production-in-eu-central-1-a", "orders-of-the-shop-in-production-in-eu-central-1-b",
		"outbox-cdc-of-the-shop-in-production-in-eu-central-1a", strings.Repeat("a", 43) + "outbox-cdc",
	} {
		m, _ := chart(t, release, "prune: {enabled: true}", optional("batch/v1 CronJob-prune")...)
		name := m.prune.Name
		if !regexp.MustCompile("^(?:"+string(selector[1])+")$").MatchString(name) || len(name) > 52 || names[name] != "" {
			t.Errorf("release %s has the CronJob %s (%d characters), release %q too", release, name, len(name), names[name])
		}
		names[name] = release
	}
}

// checkJob fails if a selector of the relay selects the pod of a job, if the NetworkPolicy does not, or if the pod is not
// restricted.
func (m *manifests) checkJob(t *testing.T, pod *corev1.PodTemplateSpec) {
	t.Helper()
	if result := restricted(t, pod); !result.Allowed {
		t.Error(result.ForbiddenDetail())
	}
	if labels.SelectorFromSet(m.service.Spec.Selector).Matches(labels.Set(pod.Labels)) {
		t.Errorf("the relay's Service selects %v", pod.Labels)
	}
	for _, set := range []labels.Set{pod.Labels, m.deployment.Spec.Template.Labels} {
		if s, err := metav1.LabelSelectorAsSelector(&m.network.Spec.PodSelector); err != nil || !s.Matches(set) {
			t.Errorf("the NetworkPolicy does not select %v (%v)", set, err)
		}
	}
}

// The NetworkPolicy allows what the relay needs and nothing else.
func TestChartNetworkPolicy(t *testing.T) {
	m, _ := chart(t, "shop", string(read(t, "testdata/helm-full.yaml")))
	spec := m.network.Spec
	if len(spec.PolicyTypes) != 2 || len(spec.Ingress) != 1 || spec.Ingress[0].Ports[0].Port.IntValue() != 9200 || spec.Ingress[0].From[0].NamespaceSelector == nil {
		t.Errorf("%v, ingress %+v", spec.PolicyTypes, spec.Ingress)
	}
	var ports []int
	for _, rule := range spec.Egress {
		for _, port := range rule.Ports {
			ports = append(ports, port.Port.IntValue())
		}
	}
	if !slices.Equal(ports, []int{53, 53, 6432, 9093, 9094, 4318}) || len(spec.Egress[0].To) != 0 || spec.Egress[1].To[0].IPBlock.CIDR != "10.0.0.0/24" || len(spec.Egress[2].To) != 1 {
		t.Errorf("egress to ports %v: %+v", ports, spec.Egress)
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
		"prune: {enabled: true, older: 1h}":            "older",
		"setup: {enabled: true, secret: ''}":           "secret",
		"networkPolicy: {broker: {ports: []}}":         "ports",
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
	standard, _ := chart(t, "outbox-cdc", "", optional()...)
	guide, _ := chart(t, "outbox-cdc", guideValues(t), optional()...)
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
