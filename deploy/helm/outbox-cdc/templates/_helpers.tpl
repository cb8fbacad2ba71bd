{{- /* name is the name of all objects: that of the release, with that of the chart if it does not contain it. */ -}}
{{- define "outbox-cdc.name" -}}
{{- $name := contains .Chart.Name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) -}}
{{- $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "outbox-cdc.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "outbox-cdc.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
{{ include "outbox-cdc.release" . }}
{{- end -}}

{{- /* release are the labels of everything; what is not the relay itself has a name of its own beside them. */ -}}
{{- define "outbox-cdc.release" -}}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "outbox-cdc.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (.Values.serviceAccount.create | ternary (include "outbox-cdc.name" .) "default") -}}
{{- end -}}

{{- define "outbox-cdc.image" -}}
{{- with .Values.image -}}
{{- .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default (printf "v%s" $.Chart.AppVersion) }}{{ end -}}
{{- end -}}
{{- end -}}

{{- define "outbox-cdc.port" -}}
{{- regexFind "[0-9]+$" .Values.config.admin.listen -}}
{{- end -}}

{{- /* grace is drain_timeout in whole seconds, rounded up, and 15 s in which the relay saves its position and exits. */ -}}
{{- define "outbox-cdc.grace" -}}
{{- $start := toDate "2006-01-02" "2000-01-01" -}}
{{- $end := mustDateModify (.Values.config.drain_timeout | default "25s") $start -}}
{{- add (sub (unixEpoch $end) (unixEpoch $start)) (ternary 15 16 (eq 0 $end.Nanosecond)) -}}
{{- end -}}

{{- /* part is the name of what belongs to the relay: of a list of the root and a suffix. A CronJob's name has at most 52 characters.
A shortened name contains that of the chart, by which an alert selects CronJobs, and a hash, so that no two releases share it. */ -}}
{{- define "outbox-cdc.part" -}}
{{- $root := first . -}}
{{- $name := include "outbox-cdc.name" $root -}}
{{- if gt (len $name) 45 -}}
{{- $name = printf "%s-%s-%s" ($root.Release.Name | trunc 27 | trimSuffix "-") ($root.Release.Name | sha256sum | trunc 6) $root.Chart.Name -}}
{{- end -}}
{{- printf "%s-%s" $name (last .) -}}
{{- end -}}

{{- /* pod is what the pods of the relay and of its jobs have in common. */ -}}
{{- define "outbox-cdc.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "outbox-cdc.container" -}}
image: {{ include "outbox-cdc.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end -}}

{{- /* jobEnv is the environment of a job: that of the relay with the DSN of the job, of a list of the root and the Secret. */ -}}
{{- define "outbox-cdc.jobEnv" -}}
{{- range (first .).Values.env }}
{{- if not (has .name (list "OUTBOX_CDC_SOURCE_DSN" "OUTBOX_CDC_SOURCE_DSN_FILE")) }}
{{ list . | toYaml }}
{{- end }}
{{- end }}
- {name: OUTBOX_CDC_SOURCE_DSN_FILE, value: /run/secrets/{{ last . }}/dsn}
{{- end -}}

{{- /* mounts are those of the configuration, of Secrets, and of volumeMounts: of a list of the root, whether it is the relay, and the
Secrets. Directories: a file mounted with subPath never changes. Jobs have no claims, which may be for one node or pod. */ -}}
{{- define "outbox-cdc.mounts" -}}
{{- $claims := list -}}
{{- range (first .).Values.volumes }}{{ if hasKey . "persistentVolumeClaim" }}{{ $claims = append $claims .name }}{{ end }}{{ end -}}
{{- $relay := index . 1 -}}
- {name: config, mountPath: /etc/outbox-cdc, readOnly: true}
{{- range last . }}
- {name: secret-{{ . }}, mountPath: /run/secrets/{{ . }}, readOnly: true}
{{- end }}
{{- range (first .).Values.volumeMounts }}
{{- if or $relay (not (has .name $claims)) }}
{{ list . | toYaml }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* volumes are those of mounts: of a list of the root, whether it is the relay, the name of the configuration's ConfigMap, and the
Secrets. */ -}}
{{- define "outbox-cdc.volumes" -}}
{{- $relay := index . 1 -}}
- name: config
  configMap: {name: {{ index . 2 }}}
{{- range last . }}
- name: secret-{{ . }}
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- range (first .).Values.volumes }}
{{- if or $relay (not (hasKey . "persistentVolumeClaim")) }}
{{ list . | toYaml }}
{{- end }}
{{- end }}
{{- end -}}
