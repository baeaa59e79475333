{{/* Names and labels. */}}
{{- define "firstfault.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "firstfault.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains (include "firstfault.name" .) .Release.Name }}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "firstfault.name" .) | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* Labels of one component: (list $ "correlator"). */}}
{{- define "firstfault.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ include "firstfault.name" $root }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "firstfault.labels" -}}
{{- $root := index . 0 -}}
{{ include "firstfault.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: firstfault
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- with $root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "firstfault.image" -}}
{{- $image := .Values.image -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{- define "firstfault.correlatorAccount" -}}
{{- .Values.serviceAccount.correlatorName | default (ternary (printf "%s-correlator" (include "firstfault.fullname" .)) "default" .Values.serviceAccount.create) }}
{{- end }}

{{- define "firstfault.agentAccount" -}}
{{- .Values.serviceAccount.agentName | default (ternary (printf "%s-agent" (include "firstfault.fullname" .)) "default" .Values.serviceAccount.create) }}
{{- end }}

{{/* What every container of ours may do: nothing. */}}
{{- define "firstfault.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- define "firstfault.probes" -}}
{{- $ask := dict "port" "http" -}}
{{- $kind := ternary "tcpSocket" "httpGet" .Values.probes.tcp -}}
{{- $live := $ask -}}
{{- $ready := $ask -}}
{{- if not .Values.probes.tcp -}}
{{- $live = merge (dict "path" "/-/healthy" "scheme" .Values.probes.scheme) $ask -}}
{{- $ready = merge (dict "path" "/-/ready" "scheme" .Values.probes.scheme) $ask -}}
{{- end -}}
# State of a large site takes a while to restore; it is not ready and not dead meanwhile.
startupProbe:
  {{ $kind }}: {{ toJson $live }}
  periodSeconds: 2
  failureThreshold: 150
livenessProbe:
  {{ $kind }}: {{ toJson $live }}
  periodSeconds: 15
  timeoutSeconds: 5
  failureThreshold: 4
readinessProbe:
  {{ $kind }}: {{ toJson $ready }}
  periodSeconds: 5
  timeoutSeconds: 5
{{- end }}

{{/* Mounts and volumes that correlator and agents share: (list $ "correlator"). */}}
{{- define "firstfault.commonMounts" -}}
{{- $root := index . 0 -}}
- name: config
  mountPath: /etc/firstfault/config
  readOnly: true
- name: cache
  mountPath: /var/cache/firstfault
- name: tmp
  mountPath: /tmp
{{- range $root.Values.rules.configMaps }}
- name: rules-{{ . | replace "." "-" }}
  mountPath: /etc/firstfault/rules/{{ . }}
  readOnly: true
{{- end }}
{{- if $root.Values.rules.inline }}
- name: rules-inline
  mountPath: /etc/firstfault/rules/inline
  readOnly: true
{{- end }}
{{- range $name, $_ := include "firstfault.secrets" $root | fromYaml }}
- name: secret-{{ $name }}
  mountPath: /etc/firstfault/secrets/{{ $name }}
  readOnly: true
{{- end }}
{{- end }}

{{- define "firstfault.commonVolumes" -}}
{{- $root := index . 0 -}}
- name: config
  configMap:
    name: {{ include "firstfault.fullname" $root }}-{{ index . 1 }}
- name: cache
  emptyDir:
    sizeLimit: 256Mi
- name: tmp
  emptyDir:
    sizeLimit: 256Mi
{{- range $root.Values.rules.configMaps }}
- name: rules-{{ . | replace "." "-" }}
  configMap:
    name: {{ . }}
{{- end }}
{{- if $root.Values.rules.inline }}
- name: rules-inline
  configMap:
    name: {{ include "firstfault.fullname" $root }}-rules
{{- end }}
{{- range $name, $secret := include "firstfault.secrets" $root | fromYaml }}
- name: secret-{{ $name }}
  secret:
    secretName: {{ $secret }}
    defaultMode: 0440
{{- end }}
{{- end }}

{{/* Secrets by the name they are mounted under. */}}
{{- define "firstfault.secrets" -}}
{{- $all := deepCopy .Values.existingSecrets -}}
{{- with .Values.alertmanager.existingSecret }}{{ $_ := set $all "alertmanager" . }}{{ end -}}
{{- if eq .Values.transport.kind "http" }}{{ $_ := set $all "events" (include "firstfault.tokenSecret" .) }}{{ end -}}
{{ toYaml $all }}
{{- end }}

{{/* Where pods of a role go: its values. */}}
{{- define "firstfault.scheduling" -}}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
