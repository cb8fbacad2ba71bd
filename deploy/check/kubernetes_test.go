package check

import (
	"bytes"
	"path/filepath"
	"testing"

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

// manifests are the documents of deploy/kubernetes by kind.
type manifests struct {
	account    corev1.ServiceAccount
	config     corev1.ConfigMap
	secret     corev1.Secret
	deployment appsv1.Deployment
	budget     policyv1.PodDisruptionBudget
	service    corev1.Service
	prune      batchv1.CronJob
}

// load decodes every manifest as its kind. Unknown and duplicate fields are errors.
func load(t *testing.T) *manifests {
	t.Helper()
	var m manifests
	kinds := map[metav1.TypeMeta]any{
		{APIVersion: "v1", Kind: "ServiceAccount"}:             &m.account,
		{APIVersion: "v1", Kind: "ConfigMap"}:                  &m.config,
		{APIVersion: "v1", Kind: "Secret"}:                     &m.secret,
		{APIVersion: "apps/v1", Kind: "Deployment"}:            &m.deployment,
		{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"}: &m.budget,
		{APIVersion: "v1", Kind: "Service"}:                    &m.service,
		{APIVersion: "batch/v1", Kind: "CronJob"}:              &m.prune,
	}
	files, err := filepath.Glob("../kubernetes/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(files, "../kubernetes/examples/secret.yaml", "../kubernetes/examples/prune.yaml") {
		text := read(t, path)
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
	for kind := range kinds {
		t.Errorf("there is no %s", kind.Kind)
	}
	return &m
}

// Every reference between the manifests resolves.
func TestManifests(t *testing.T) {
	m := load(t)
	pod := m.deployment.Spec.Template
	if d := m.deployment.Spec; *d.Replicas != 1 || d.Strategy.Type != appsv1.RecreateDeploymentStrategyType {
		t.Errorf("%d replicas, %s: only one process streams from a slot", *d.Replicas, d.Strategy.Type)
	}
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
	relay := pod.Spec.Containers[0]
	port := relay.Ports[0].Name
	for what, name := range map[string]string{
		"livenessProbe": relay.LivenessProbe.HTTPGet.Port.StrVal, "readinessProbe": relay.ReadinessProbe.HTTPGet.Port.StrVal,
		"Service": m.service.Spec.Ports[0].TargetPort.StrVal,
	} {
		if name != port {
			t.Errorf("%s asks port %q, the container has %q", what, name, port)
		}
	}
	for _, spec := range []corev1.PodSpec{pod.Spec, m.prune.Spec.JobTemplate.Spec.Template.Spec} {
		mounts := map[string]string{}
		for _, v := range spec.Containers[0].VolumeMounts {
			mounts[v.Name] = v.MountPath
		}
		for _, v := range spec.Volumes {
			if mounts[v.Name] == "" {
				t.Errorf("volume %s is not mounted", v.Name)
			}
			switch {
			case v.ConfigMap != nil && v.ConfigMap.Name != m.config.Name, v.Secret != nil && v.Secret.SecretName != m.secret.Name && v.Name != "prune":
				t.Errorf("volume %s has a source that does not exist", v.Name)
			}
		}
		if spec.Containers[0].Image != relay.Image || spec.ServiceAccountName != m.account.Name {
			t.Errorf("%s with service account %q differs from the relay", spec.Containers[0].Image, spec.ServiceAccountName)
		}
	}
}

// The pods comply with the strictest pod security standard of Kubernetes.
func TestRestricted(t *testing.T) {
	m := load(t)
	pod, prune := m.deployment.Spec.Template, m.prune.Spec.JobTemplate.Spec.Template
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	level := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
	if result := policy.AggregateCheckResults(evaluator.EvaluatePod(level, &prune.ObjectMeta, &prune.Spec)); !result.Allowed {
		t.Error(result.ForbiddenDetail())
	}
	check := func() policy.AggregateCheckResult {
		return policy.AggregateCheckResults(evaluator.EvaluatePod(level, &pod.ObjectMeta, &pod.Spec))
	}
	if result := check(); !result.Allowed {
		t.Error(result.ForbiddenDetail())
	}
	pod.Spec.SecurityContext.RunAsNonRoot = nil
	if check().Allowed {
		t.Error("the check admits a pod that may run as root")
	}
}
