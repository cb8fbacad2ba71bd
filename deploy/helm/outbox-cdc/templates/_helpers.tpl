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
{{ include "outbox-cdc.selector" . }}
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
