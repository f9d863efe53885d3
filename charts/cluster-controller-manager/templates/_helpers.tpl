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

{{/* All leases: the main one, and of replicas that share controllers those of replicas, controllers and shards. */}}
{{- define "manager.leases" -}}
{{- $lease := include "manager.lease" . }}
- {{ $lease }}
{{- if .Values.leaderElectPerController }}
{{- range $number := until (int (add 2 (mul 2 .Values.replicas))) }}
- {{ $lease }}-replica-{{ $number }}
{{- end }}
{{- $shards := .Values.controllerShards }}
{{- range (include "manager.running" . | fromYaml).controllers }}
{{- $name := .name }}
{{- if hasKey $shards $name }}
{{- range $index := until (int (get $shards $name)) }}
- {{ $lease }}-{{ $name }}-shard-{{ $index }}
{{- end }}
{{- else }}
- {{ $lease }}-{{ $name }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* What the controllers may do: those of a program of your own, or the built-in ones. */}}
{{- define "manager.rbac" -}}
{{- if .Values.rbac.controllers }}{{ toYaml .Values.rbac }}{{ else }}{{ (.Files.Get "rbac.yaml" | fromYaml).rbac | toYaml }}{{ end }}
{{- end }}

{{/* Whether a feature gate is on: context, rbac, name. */}}
{{- define "manager.gate" -}}
{{- $given := (index . 0).Values.featureGates }}
{{- $gate := get (index . 1).gates (index . 2) }}
{{- $all := printf "All%s" $gate.stage }}
{{- $on := $gate.default }}
{{- if hasKey $given (index . 2) }}{{ $on = get $given (index . 2) }}{{ else if hasKey $given $all }}{{ $on = get $given $all }}{{ end }}
{{- if $on }}true{{ end }}
{{- end }}

{{/* Whether extraArgs have a flag: context, name. */}}
{{- define "manager.flag" -}}
{{- $flag := printf "^--?%s(=|$)" (index . 1) }}
{{- range (index . 0).Values.extraArgs }}{{ if and (regexMatch $flag .) (not (hasSuffix "=false" .)) (not (hasSuffix "=" .)) }}true{{ end }}{{ end }}
{{- end }}

{{/* Of the controllers that run: name, account, reads and rules, without what features need that are off. */}}
{{- define "manager.running" -}}
{{- $root := . }}
{{- $rbac := include "manager.rbac" . | fromYaml }}
{{- $wanted := splitList "," (include "manager.controllers" .) }}
{{- $running := list }}
{{- range $controller := $rbac.controllers }}
{{- $names := prepend ($controller.aliases | default list) $controller.name }}
{{- $on := and (has "*" $wanted) (not $controller.onlyByName) }}
{{- $named := false }}
{{- range $wanted }}
{{- if and (not $named) (has (trimPrefix "-" .) $names) }}
{{- $named = true }}
{{- $on = not (hasPrefix "-" .) }}
{{- end }}
{{- end }}
{{- range $controller.gates }}{{ if not (include "manager.gate" (list $root $rbac .)) }}{{ $on = false }}{{ end }}{{ end }}
{{- range $controller.flags }}{{ if not (include "manager.flag" (list $root .)) }}{{ $on = false }}{{ end }}{{ end }}
{{- if $on }}
{{- $kept := dict "name" $controller.name "account" $controller.account }}
{{- range $part := list "reads" "rules" }}
{{- $rules := list }}
{{- range get $controller $part }}
{{- if or (not .gate) (include "manager.gate" (list $root $rbac (.gate | default ""))) }}{{ $rules = append $rules (omit . "gate") }}{{ end }}
{{- end }}
{{- $_ := set $kept $part $rules }}
{{- end }}
{{- $running = append $running $kept }}
{{- end }}
{{- end }}
{{- dict "controllers" $running | toYaml }}
{{- end }}

{{/* What the informers of running controllers list and watch: a rule for each group, or everything. */}}
{{- define "manager.reads" -}}
{{- $groups := dict }}
{{- range (include "manager.running" . | fromYaml).controllers }}
{{- range .reads }}
{{- $group := first .apiGroups }}
{{- $_ := set $groups $group (concat (get $groups $group | default list) .resources | uniq) }}
{{- end }}
{{- end }}
{{- if hasKey $groups "*" }}{{ $groups = dict "*" (list "*") }}{{ end }}
{{- $rules := list }}
{{- range $group, $resources := $groups }}
{{- $rules = append $rules (dict "apiGroups" (list $group) "resources" $resources "verbs" (list "get" "list" "watch")) }}
{{- end }}
{{- dict "rules" $rules | toYaml }}
{{- end }}

{{/* The controllers that run: those that are named, or all of a program of your own. Otherwise none. */}}
{{- define "manager.controllers" -}}
{{- if .Values.controllers }}{{ join "," .Values.controllers }}{{ else if .Values.rbac.controllers }}*{{ end }}
{{- end }}

{{/* The replicas: none while no controllers run. */}}
{{- define "manager.replicas" -}}
{{- if include "manager.controllers" . }}{{ .Values.replicas }}{{ else }}0{{ end }}
{{- end }}

{{- define "manager.image" -}}
{{- with .Values.image }}{{ if .digest }}{{ printf "%s@%s" .name .digest }}{{ else }}{{ printf "%s:%v" .name .tag }}{{ end }}{{ end }}
{{- end }}

{{/* Binds the cluster role of that name to a service account: context, name, account, namespace. */}}
{{- define "manager.clusterRoleBinding" }}
{{- $root := index . 0 }}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ index . 1 }}
  labels:
    {{- include "manager.labels" $root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ index . 1 }}
subjects:
  - kind: ServiceAccount
    name: {{ index . 2 }}
    namespace: {{ index . 3 }}
{{- end }}

{{/* Binds a role to the service account of the release: context, name, namespace, role. */}}
{{- define "manager.roleBinding" }}
{{- $root := index . 0 }}
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ index . 1 }}
  namespace: {{ index . 2 }}
  labels:
    {{- include "manager.labels" $root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ index . 3 }}
subjects:
  - kind: ServiceAccount
    name: {{ $root.Release.Name }}
    namespace: {{ $root.Release.Namespace }}
{{- end }}

{{/* Lets a service account do what rules say, those with a namespace in that one alone: context, name, account,
     namespace of the account, rules. */}}
{{- define "manager.permissions" }}
{{- $root := index . 0 }}
{{- $name := index . 1 }}
{{- $everywhere := list }}
{{- $within := dict }}
{{- range index . 4 }}
{{- if .namespace }}
{{- $_ := set $within .namespace (append (get $within .namespace | default list) (omit . "namespace")) }}
{{- else }}
{{- $everywhere = append $everywhere . }}
{{- end }}
{{- end }}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ $name }}
  labels:
    {{- include "manager.labels" $root | nindent 4 }}
rules:
  {{- toYaml $everywhere | nindent 2 }}
---
{{- include "manager.clusterRoleBinding" (list $root $name (index . 2) (index . 3)) }}
{{- $account := dict "kind" "ServiceAccount" "name" (index . 2) "namespace" (index . 3) }}
{{- range $namespace, $rules := $within }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ $name }}
  namespace: {{ $namespace }}
  labels:
    {{- include "manager.labels" $root | nindent 4 }}
rules:
  {{- toYaml $rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ $name }}
  namespace: {{ $namespace }}
  labels:
    {{- include "manager.labels" $root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ $name }}
subjects:
  - {{- toYaml $account | nindent 4 }}
{{- end }}
{{- end }}
