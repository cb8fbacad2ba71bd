package check

import (
	"bytes"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"
)

// manifests are the objects of deploy/kubernetes, or of the Helm chart.
type manifests struct {
	account     corev1.ServiceAccount
	config      corev1.ConfigMap
	secret      corev1.Secret
	deployment  appsv1.Deployment
	budget      policyv1.PodDisruptionBudget
	service     corev1.Service
	prune       batchv1.CronJob
	monitor     monitoringv1.ServiceMonitor
	rule        monitoringv1.PrometheusRule
	dashboard   corev1.ConfigMap
	network     networkingv1.NetworkPolicy
	setup       batchv1.Job
	setupConfig corev1.ConfigMap
}

// objects returns pointers to the objects of m. Each is found by its kind, with the end of its label app.kubernetes.io/name
// after outbox-cdc.
func (m *manifests) objects() map[string]any {
	return map[string]any{
		"v1 ServiceAccount":                  &m.account,
		"v1 ConfigMap":                       &m.config,
		"v1 ConfigMap-dashboard":             &m.dashboard,
		"v1 ConfigMap-setup":                 &m.setupConfig,
		"v1 Secret":                          &m.secret,
		"apps/v1 Deployment":                 &m.deployment,
		"policy/v1 PodDisruptionBudget":      &m.budget,
		"v1 Service":                         &m.service,
		"batch/v1 CronJob-prune":             &m.prune,
		"batch/v1 Job-setup":                 &m.setup,
		"networking.k8s.io/v1 NetworkPolicy": &m.network,

		"monitoring.coreos.com/v1 ServiceMonitor": &m.monitor,
		"monitoring.coreos.com/v1 PrometheusRule": &m.rule,
	}
}

// decode decodes text as its object, and removes it from objects. Unknown and duplicate fields are errors.
func decode(t *testing.T, objects map[string]any, path string, text []byte) {
	t.Helper()
	if bytes.Contains(text, []byte("\n---")) {
		t.Fatalf("%s has several documents", path)
	}
	var meta metav1.PartialObjectMetadata
	if err := yaml.Unmarshal(text, &meta); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	key := meta.APIVersion + " " + meta.Kind + strings.TrimPrefix(meta.Labels["app.kubernetes.io/name"], "outbox-cdc")
	object := objects[key]
	delete(objects, key)
	if object == nil {
		t.Fatalf("%s: duplicate or unknown object %s", path, key)
	}
	if err := yaml.UnmarshalStrict(text, object); err != nil {
		t.Errorf("%s: %v", path, err)
	}
}

// optional returns the objects that the chart does not create with its default values, without some.
func optional(without ...string) []string {
	all := []string{
		"v1 ConfigMap-dashboard", "v1 ConfigMap-setup", "batch/v1 CronJob-prune", "batch/v1 Job-setup", "networking.k8s.io/v1 NetworkPolicy",
		"monitoring.coreos.com/v1 ServiceMonitor", "monitoring.coreos.com/v1 PrometheusRule",
	}
	return slices.DeleteFunc(all, func(key string) bool { return slices.Contains(without, key) })
}

// requireAbsent fails unless exactly the absent objects remain in objects.
func requireAbsent(t *testing.T, objects map[string]any, absent ...string) {
	t.Helper()
	slices.Sort(absent)
	if got := slices.Sorted(maps.Keys(objects)); !slices.Equal(got, absent) {
		t.Errorf("there is no %q, want %q to be absent", got, absent)
	}
}

// load decodes every manifest in deploy/kubernetes.
func load(t *testing.T) *manifests {
	t.Helper()
	var m manifests
	objects := m.objects()
	files, err := filepath.Glob("../kubernetes/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(files, "../kubernetes/examples/secret.yaml", "../kubernetes/examples/prune.yaml") {
		decode(t, objects, path, read(t, path))
	}
	requireAbsent(t, objects, optional("batch/v1 CronJob-prune")...)
	return &m
}

// Every reference between the manifests resolves.
func TestManifests(t *testing.T) {
	m := load(t)
	pod := m.deployment.Spec.Template
	if d := m.deployment.Spec; d.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType || d.Strategy.RollingUpdate.MaxUnavailable.IntValue() != 0 {
		t.Errorf("%+v: the old relay must stream until the new one is ready", d.Strategy)
	}
	m.checkSelectors(t)
	m.checkPorts(t)
	for _, spec := range []corev1.PodSpec{pod.Spec, m.prune.Spec.JobTemplate.Spec.Template.Spec} {
		m.checkPod(t, &spec, m.secret.Name, "outbox-cdc-prune")
	}
}

// checkSelectors fails unless every selector selects the relay's pods.
func (m *manifests) checkSelectors(t *testing.T) {
	t.Helper()
	pod := m.deployment.Spec.Template
	selectors := map[string]*metav1.LabelSelector{
		"Deployment":          m.deployment.Spec.Selector,
		"PodDisruptionBudget": m.budget.Spec.Selector,
		"Service":             {MatchLabels: m.service.Spec.Selector},
	}
	for kind, s := range selectors {
		selector, err := metav1.LabelSelectorAsSelector(s)
		if err != nil || selector.Empty() || !selector.Matches(labels.Set(pod.Labels)) {
			t.Errorf("%s: %v does not select the pod (%v)", kind, s, err)
		}
	}
}

// checkPorts fails unless probes and Service use the relay's port.
func (m *manifests) checkPorts(t *testing.T) {
	t.Helper()
	relay := m.deployment.Spec.Template.Spec.Containers[0]
	port := relay.Ports[0].Name
	for what, name := range map[string]string{
		"livenessProbe": relay.LivenessProbe.HTTPGet.Port.StrVal, "readinessProbe": relay.ReadinessProbe.HTTPGet.Port.StrVal,
		"Service": m.service.Spec.Ports[0].TargetPort.StrVal,
	} {
		if name != port {
			t.Errorf("%s asks port %q, the container has %q", what, name, port)
		}
	}
}

// checkPod fails unless the pod mounts every volume, and uses only the relay's image, service account and
// ConfigMap, and the given Secrets.
func (m *manifests) checkPod(t *testing.T, spec *corev1.PodSpec, secrets ...string) {
	t.Helper()
	mounts := map[string]string{}
	for _, v := range spec.Containers[0].VolumeMounts {
		mounts[v.Name] = v.MountPath
	}
	for _, v := range spec.Volumes {
		if mounts[v.Name] == "" {
			t.Errorf("volume %s is not mounted", v.Name)
		}
		if v.ConfigMap != nil && v.ConfigMap.Name != m.config.Name || v.Secret != nil && !slices.Contains(secrets, v.Secret.SecretName) {
			t.Errorf("volume %s has a source that does not exist", v.Name)
		}
	}
	if image := m.deployment.Spec.Template.Spec.Containers[0].Image; spec.Containers[0].Image != image || spec.ServiceAccountName != m.account.Name {
		t.Errorf("%s with service account %q differs from the relay", spec.Containers[0].Image, spec.ServiceAccountName)
	}
}

// The pods comply with the strictest pod security standard of Kubernetes.
func TestRestricted(t *testing.T) {
	m := load(t)
	pod, prune := m.deployment.Spec.Template, m.prune.Spec.JobTemplate.Spec.Template
	for _, template := range []corev1.PodTemplateSpec{pod, prune} {
		if result := restricted(t, &template); !result.Allowed {
			t.Error(result.ForbiddenDetail())
		}
	}
	pod.Spec.SecurityContext.RunAsNonRoot = nil
	if restricted(t, &pod).Allowed {
		t.Error("the check admits a pod that may run as root")
	}
}

// restricted returns whether the pod security standard "restricted" admits a pod.
func restricted(t *testing.T, pod *corev1.PodTemplateSpec) policy.AggregateCheckResult {
	t.Helper()
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	level := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
	return policy.AggregateCheckResults(evaluator.EvaluatePod(level, &pod.ObjectMeta, &pod.Spec))
}
