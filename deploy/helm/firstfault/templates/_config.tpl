{{/*
The daemon's configuration of each role: what the chart knows, then `config`, then the role's own `config`.
Only sections that a running daemon takes over by itself are left out of the checksum that rolls pods.
*/}}
{{- define "firstfault.commonConfig" -}}
{{- $folders := list -}}
{{- range .Values.rules.configMaps }}{{ $folders = append $folders (printf "/etc/firstfault/rules/%s" .) }}{{ end -}}
{{- if .Values.rules.inline }}{{ $folders = append $folders "/etc/firstfault/rules/inline" }}{{ end -}}
web:
  listen: 0.0.0.0:9465
store:
  path: /var/lib/firstfault
console:
  format: none
log:
  format: json
reload:
  watch_secs: 10
{{- with $folders }}
rules:
  folders: {{ toJson . }}
{{- end }}
{{- end }}

{{- define "firstfault.pages" -}}
{{- $am := .Values.alertmanager -}}
{{- $targets := list -}}
{{- range $am.urls -}}
{{- $target := dict "url" . -}}
{{- if and $am.existingSecret $am.username -}}
{{- $_ := set $target "basic_auth" (dict "username" $am.username "password_file" "/etc/firstfault/secrets/alertmanager/password") -}}
{{- else if $am.existingSecret -}}
{{- $_ := set $target "bearer_token_file" "/etc/firstfault/secrets/alertmanager/token" -}}
{{- end -}}
{{- $targets = append $targets $target -}}
{{- end -}}
{{- if $targets }}
alertmanager:
  targets: {{ toJson $targets }}
  {{- with $am.labels }}
  labels: {{ toJson . }}
  {{- end }}
{{- end }}
{{- end }}

{{/* (list $ base role): base, then the shared settings, then the role's. Lists are replaced, not joined. */}}
{{- define "firstfault.merged" -}}
{{- $root := index . 0 -}}
{{ toYaml (mergeOverwrite (index . 1) (deepCopy $root.Values.config) (deepCopy (index $root.Values (index . 2)).config)) }}
{{- end }}

{{- define "firstfault.config.correlator" -}}
{{- $base := mergeOverwrite (include "firstfault.commonConfig" . | fromYaml) (include "firstfault.pages" . | fromYaml) -}}
{{- with .Values.correlator.ingress }}
{{- if and .enabled .host }}
{{- $_ := set $base.web "external_url" (printf "%s://%s" (ternary "https" "http" (ne .tlsSecret "")) .host) }}
{{- end }}
{{- end -}}
{{ include "firstfault.merged" (list . $base "correlator") }}
{{- end }}

{{- define "firstfault.config.agent" -}}
{{- $base := include "firstfault.commonConfig" . | fromYaml -}}
{{- $include := list -}}
{{- range (.Values.agent.namespaces | default (list "*")) }}{{ $include = append $include (printf "/var/log/pods/%s_*/*/*.log*" .) }}{{ end -}}
{{- $own := printf "/var/log/pods/%s_%s-*/**" .Release.Namespace (include "firstfault.fullname" .) -}}
{{- $_ := set $base "sources" (dict "files" (list (dict "name" "pods" "include" $include "exclude" (list $own)))) -}}
{{ include "firstfault.merged" (list . $base "agent") }}
{{- end }}

{{/* What only a restart applies: pods roll when it changes, and only then. */}}
{{- define "firstfault.restartChecksum" -}}
{{ omit (fromYaml .) "rules" "incidents" "jobs" "alertmanager" "alerts" "reload" "log" | toYaml | sha256sum }}
{{- end }}
