package check

import (
	"bytes"
	"path/filepath"
	"slices"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"
)

// manifests are the objects of deploy/kubernetes, or of the Helm chart, by kind.
type manifests struct {
	account    corev1.ServiceAccount
	config     corev1.ConfigMap
	secret     corev1.Secret
	deployment appsv1.Deployment
	budget     policyv1.PodDisruptionBudget
	service    corev1.Service
	prune      batchv1.CronJob
	monitor    monitoringv1.ServiceMonitor
}

// kinds returns pointers to the objects of m, by kind.
func (m *manifests) kinds() map[metav1.TypeMeta]any {
	return map[metav1.TypeMeta]any{
		{APIVersion: "v1", Kind: "ServiceAccount"}:             &m.account,
		{APIVersion: "v1", Kind: "ConfigMap"}:                  &m.config,
		{APIVersion: "v1", Kind: "Secret"}:                     &m.secret,
		{APIVersion: "apps/v1", Kind: "Deployment"}:            &m.deployment,
		{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"}: &m.budget,
		{APIVersion: "v1", Kind: "Service"}:                    &m.service,
		{APIVersion: "batch/v1", Kind: "CronJob"}:              &m.prune,

		{APIVersion: "monitoring.coreos.com/v1", Kind: "ServiceMonitor"}: &m.monitor,
	}
}

// decode decodes text as an object of its kind, and removes the kind from kinds. Unknown and duplicate fields are errors.
func decode(t *testing.T, kinds map[metav1.TypeMeta]any, path string, text []byte) {
	t.Helper()
	if bytes.Contains(text, []byte("\n---")) {
		t.Fatalf("%s has several documents", path)
	}
	var kind metav1.TypeMeta
	if err := yaml.Unmarshal(text, &kind); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	object := kinds[kind]
	delete(kinds, kind)
	if object == nil {
		t.Fatalf("%s: duplicate or unknown kind %v", path, kind)
	}
	if err := yaml.UnmarshalStrict(text, object); err != nil {
		t.Errorf("%s: %v", path, err)
	}
}

// requireKinds fails unless the kinds without an object are the absent ones.
func requireKinds(t *testing.T, kinds map[metav1.TypeMeta]any, absent ...string) {
	t.Helper()
	for kind := range kinds {
		if !slices.Contains(absent, kind.Kind) {
			t.Errorf("there is no %s", kind.Kind)
		}
	}
	if len(kinds) != len(absent) {
		t.Errorf("%d kinds have no object, want %v", len(kinds), absent)
	}
}

// load decodes every manifest in deploy/kubernetes.
func load(t *testing.T) *manifests {
	t.Helper()
	var m manifests
	kinds := m.kinds()
	files, err := filepath.Glob("../kubernetes/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(files, "../kubernetes/examples/secret.yaml", "../kubernetes/examples/prune.yaml") {
		decode(t, kinds, path, read(t, path))
	}
	requireKinds(t, kinds, "ServiceMonitor")
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
