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

{{/* Where matchers post to, as a list: (list $ urls). Replicas are named one by one, since each job belongs to one of them. */}}
{{- define "firstfault.correlators" -}}
{{- $root := index . 0 -}}
{{- $urls := index . 1 -}}
{{- with $root.Values.correlator -}}
{{- if and .enabled (not $urls) -}}
{{- $name := printf "%s-correlator" (include "firstfault.fullname" $root) -}}
{{- if and (eq .kind "StatefulSet") (gt (int .replicas) 1) -}}
{{- range $i := until (int .replicas) }}{{ $urls = append $urls (printf "%s://%s-%d.%s-pods.%s.svc:9465" (lower $root.Values.probes.scheme) $name $i $name $root.Release.Namespace) }}{{ end -}}
{{- else -}}
{{- $urls = list (printf "%s://%s.%s.svc:%d" (lower $root.Values.probes.scheme) $name $root.Release.Namespace (int .service.port)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{ toYaml $urls }}
{{- end }}

{{- define "firstfault.transport" -}}
{{- $targets := list -}}
{{- range include "firstfault.correlators" . | fromYamlArray }}{{ $targets = append $targets (dict "url" . "bearer_token_file" "/etc/firstfault/secrets/events/token") }}{{ end -}}
{{- if eq (index . 0).Values.transport.kind "kafka" }}
transport:
  kafka: {}
{{- else if $targets }}
transport:
  http:
    targets: {{ toJson $targets }}
{{- end }}
{{- end }}

{{/* Name of the Secret with the token between them. */}}
{{- define "firstfault.tokenSecret" -}}
{{- .Values.transport.existingSecret | default (printf "%s-events" (include "firstfault.fullname" .)) }}
{{- end }}

{{- define "firstfault.config.correlator" -}}
{{- $base := mergeOverwrite (include "firstfault.commonConfig" . | fromYaml) (include "firstfault.pages" . | fromYaml) (dict "role" "correlator") -}}
{{- if eq .Values.transport.kind "http" }}
{{- $_ := set $base "events" (dict "bearer_token_file" "/etc/firstfault/secrets/events/token") }}
{{- else }}
{{- $_ := set $base "events" (dict "kafka" true) }}
{{- end }}
{{- with .Values.correlator.ingress }}
{{- if and .enabled .host }}
{{- $_ := set $base.web "external_url" (printf "%s://%s" (ternary "https" "http" (ne .tlsSecret "")) .host) }}
{{- end }}
{{- end -}}
{{ include "firstfault.merged" (list . $base "correlator") }}
{{- end }}

{{- define "firstfault.config.agent" -}}
{{- $way := include "firstfault.transport" (list . .Values.agent.correlatorUrls) | fromYaml -}}
{{- $base := mergeOverwrite (include "firstfault.commonConfig" . | fromYaml) $way (dict "role" "matcher") -}}
{{- if not $way }}
{{- $base = mergeOverwrite $base (include "firstfault.pages" . | fromYaml) }}
{{- end }}
{{- if .Values.agent.watchPods }}
{{- $_ := set $base "identity" (dict "kubernetes" (dict "watch" "node")) }}
{{- end }}
{{- $include := list -}}
{{- range (.Values.agent.namespaces | default (list "*")) }}{{ $include = append $include (printf "/var/log/pods/%s_*/*/*.log*" .) }}{{ end -}}
{{- $own := printf "/var/log/pods/%s_%s-*/**" .Release.Namespace (include "firstfault.fullname" .) -}}
{{- $_ := set $base "sources" (dict "files" (list (dict "name" "pods" "include" $include "exclude" (list $own)))) -}}
{{- if .Values.agent.kernel }}
{{- $_ := set $base.sources "kernel" (dict "device" "/dev/kmsg" "proc_root" "/host/proc") }}
{{- end }}
{{ include "firstfault.merged" (list . $base "agent") }}
{{- end }}

{{/* What only a restart applies: pods roll when it changes, and only then. */}}
{{- define "firstfault.restartChecksum" -}}
{{ omit (fromYaml .) "rules" "incidents" "jobs" "alertmanager" "alerts" "reload" "log" | toYaml | sha256sum }}
{{- end }}
