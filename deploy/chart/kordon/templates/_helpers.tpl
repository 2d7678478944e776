{{- define "kordon.name" -}}
{{- if contains "kordon" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}{{ printf "%s-kordon" (.Release.Name | trunc 43 | trimSuffix "-") }}{{ end }}
{{- end }}

{{- define "kordon.selector" -}}
app.kubernetes.io/name: kordon
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "kordon.labels" -}}
{{ include "kordon.selector" . }}
{{ include "kordon.chart" . }}
{{- end }}

{{- define "kordon.auditor.selector" -}}
app.kubernetes.io/name: kordon-audit
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "kordon.chart" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "kordon.listenPort" -}}
{{ .Values.config.listen.address | splitList ":" | last }}
{{- end }}

{{- /* The ports of the brokers, as a JSON map of node id to port; none with server names. */ -}}
{{- define "kordon.brokerPorts" -}}
{{- $listen := .Values.config.listen }}
{{- $ports := dict }}
{{- if not $listen.sni }}
{{- $base := $listen.base_port | default (add1 (include "kordon.listenPort" . | int)) }}
{{- $given := dict }}
{{- range $id, $port := $listen.ports | default dict }}{{ $_ := set $given (toString $id) $port }}{{ end }}
{{- range .Values.nodeIds }}
{{- $_ := set $ports (toString .) (int (get $given (toString .) | default (add $base .))) }}
{{- end }}
{{- end }}
{{- toJson $ports }}
{{- end }}

{{- /* The names that clients connect to, as a JSON list. */ -}}
{{- define "kordon.dnsNames" -}}
{{- $listen := .Values.config.listen }}
{{- $names := list $listen.advertise }}
{{- with $listen.sni }}
{{- $broker := .broker }}
{{- $names = list .bootstrap }}
{{- range $.Values.nodeIds }}{{ $names = append $names ($broker | replace "$(node_id)" (toString .)) }}{{ end }}
{{- end }}
{{- toJson $names }}
{{- end }}

{{- /* The Secrets with files for Kordon, as a JSON list. */ -}}
{{- define "kordon.secretFiles" -}}
{{- $secrets := .Values.secretFiles }}
{{- if .Values.certificate.enabled }}{{ $secrets = append $secrets (printf "%s-tls" (include "kordon.name" .)) }}{{ end }}
{{- toJson $secrets }}
{{- end }}

{{- define "kordon.memoryMiB" -}}
{{- /* A worker's process and connections, its reading cache and writes that wait take 384 MiB (docs/limits.md). */ -}}
{{- $held := dig "limits" "held_bytes" 268435456 .Values.config | int64 }}
{{- $decisions := dig "decisions" "queue_bytes" 33554432 .Values.config | int64 }}
{{- mul (.Values.config.workers | default 1 | int) (add 384 (div (add $held $decisions) 1048576)) }}
{{- end }}

{{- define "kordon.container.security" -}}
readOnlyRootFilesystem: true
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
{{- end }}
