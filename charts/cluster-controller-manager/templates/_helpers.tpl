{{/* Labels by which the parts of a release find each other. */}}
{{- define "manager.selector" -}}
app.kubernetes.io/name: cluster-controller-manager
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Labels of every object. */}}
{{- define "manager.labels" -}}
{{ include "manager.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "manager.lease" -}}
{{ .Values.leaseName | default .Release.Name }}
{{- end }}
