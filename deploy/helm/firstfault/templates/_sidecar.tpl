{{/*
The sidecar, for the pods of your own charts: name this chart as a dependency and write

    initContainers:
      {{- include "firstfault.sidecar" . | nindent 6 }}
    containers:
      - name: trainer
        volumeMounts:
          {{- include "firstfault.sidecar.logMount" . | nindent 10 }}
    volumes:
      {{- include "firstfault.sidecar.volumes" . | nindent 6 }}

Its values stand below `firstfault:` (the dependency's name) or, in this chart itself, at the top.

It is an init container that goes on running (`restartPolicy: Always`): it starts before the training, does not keep a Job from
completing, and is stopped after the training containers, so that it reads their last words.

All three take `(dict "root" . "logs" FOLDER "include" (list GLOB ...))` too, for pods whose logs lie elsewhere.
*/}}
{{- define "firstfault.sidecar.scope" -}}
{{- $call := . -}}
{{- with (ternary .root . (hasKey . "root")) -}}
{{- $values := .Values -}}
{{- $chart := .Chart -}}
{{- if and (hasKey .Values "firstfault") (kindIs "map" .Values.firstfault) -}}
{{- $values = .Values.firstfault -}}
{{- if and (hasKey . "Subcharts") (hasKey .Subcharts "firstfault") -}}
{{- $chart = .Subcharts.firstfault.Chart -}}
{{- end -}}
{{- end -}}
{{- $logs := $call.logs | default $values.sidecar.logs -}}
{{- $include := $call.include | default (list (printf "%s/**/*" $logs)) -}}
{{- /* A root for the helpers of this chart, whose values are then its own. */}}
{{- $own := dict "Values" $values "Chart" (dict "Name" "firstfault" "AppVersion" $chart.AppVersion) "Release" .Release -}}
{{- $way := include "firstfault.transport" (list $own $values.sidecar.correlatorUrls) | fromYaml -}}
{{- $secrets := deepCopy $values.existingSecrets -}}
{{- if and $way (eq $values.transport.kind "http") }}{{ $_ := set $secrets "events" ($values.sidecar.tokenSecret | default (include "firstfault.tokenSecret" $own)) }}{{ end -}}
{{ toYaml (dict "values" $values "way" $way "secrets" $secrets "version" $chart.AppVersion "logs" $logs "include" $include) }}
{{- end -}}
{{- end }}

{{- define "firstfault.sidecar" -}}
{{- $scope := include "firstfault.sidecar.scope" . | fromYaml -}}
{{- $values := $scope.values -}}
{{- $side := $values.sidecar -}}
{{- $image := $values.image -}}
- name: firstfault
  {{- if $image.digest }}
  image: {{ $image.repository }}@{{ $image.digest }}
  {{- else }}
  image: {{ $image.repository }}:{{ $image.tag | default $scope.version }}
  {{- end }}
  imagePullPolicy: {{ $image.pullPolicy }}
  restartPolicy: Always
  args: [run]
  env:
    - name: POD_NAME
      valueFrom:
        fieldRef:
          fieldPath: metadata.name
    - name: POD_NAMESPACE
      valueFrom:
        fieldRef:
          fieldPath: metadata.namespace
    - name: NODE_NAME
      valueFrom:
        fieldRef:
          fieldPath: spec.nodeName
    - name: POD_IP
      valueFrom:
        fieldRef:
          fieldPath: status.podIP
    {{- range $name, $value := include "firstfault.sidecar.settings" $scope | fromYaml }}
    - name: {{ $name }}
      value: {{ $value | quote }}
    {{- end }}
  ports:
    - name: firstfault
      containerPort: 9465
  # Training does not wait for it longer than it takes to listen.
  startupProbe:
    httpGet: {"path": "/-/healthy", "port": "firstfault"}
    periodSeconds: 1
    failureThreshold: 60
  resources: {{- toYaml $side.resources | nindent 4 }}
  securityContext:
    {{- with $side.securityContext }}{{ toYaml . | nindent 4 }}{{ end }}
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    capabilities:
      drop: [ALL]
    seccompProfile:
      type: RuntimeDefault
  volumeMounts:
    - name: firstfault-logs
      mountPath: {{ $scope.logs }}
      readOnly: true
    - name: firstfault-podinfo
      mountPath: /etc/podinfo
      readOnly: true
    - name: firstfault-state
      mountPath: /var/lib/firstfault
      subPath: state
    - name: firstfault-state
      mountPath: /var/cache/firstfault
      subPath: cache
    {{- range $name, $_ := $scope.secrets }}
    - name: firstfault-secret-{{ $name }}
      mountPath: /etc/firstfault/secrets/{{ $name }}
      readOnly: true
    {{- end }}
{{- end }}

{{/* The shared folder of logs, for the training containers. */}}
{{- define "firstfault.sidecar.logMount" -}}
{{- $scope := include "firstfault.sidecar.scope" . | fromYaml -}}
- name: firstfault-logs
  mountPath: {{ $scope.logs }}
{{- end }}

{{- define "firstfault.sidecar.volumes" -}}
{{- $scope := include "firstfault.sidecar.scope" . | fromYaml -}}
- name: firstfault-logs
  emptyDir:
    sizeLimit: {{ $scope.values.sidecar.logsSizeLimit }}
- name: firstfault-state
  emptyDir:
    sizeLimit: 1Gi
- name: firstfault-podinfo
  downwardAPI:
    items:
      - path: labels
        fieldRef:
          fieldPath: metadata.labels
      - path: annotations
        fieldRef:
          fieldPath: metadata.annotations
      - path: name
        fieldRef:
          fieldPath: metadata.name
      - path: namespace
        fieldRef:
          fieldPath: metadata.namespace
      - path: uid
        fieldRef:
          fieldPath: metadata.uid
{{- range $name, $secret := $scope.secrets }}
- name: firstfault-secret-{{ $name }}
  secret:
    secretName: {{ $secret }}
    # Of the sidecar's own user, whichever that is.
    defaultMode: 0444
{{- end }}
{{- end }}

{{/* Its configuration as variables, one a setting: training namespaces then need no ConfigMap of ours. */}}
{{- define "firstfault.sidecar.settings" -}}
{{- $side := .values.sidecar -}}
{{- $config := dict
  "web" (dict "listen" "0.0.0.0:9465")
  "sources" (dict "files" (list (dict "name" "train" "include" .include)))
  "console" (dict "format" "none")
  "log" (dict "format" "json")
  "store" (dict "path" "/var/lib/firstfault")
  "alerts" (dict "whole_jobs_only" true)
-}}
{{- $who := dict "environment" true "downward_api" "/etc/podinfo" -}}
{{- with $side.processesPerNode }}{{ $_ := set $who "processes_per_node" (int .) }}{{ end -}}
{{- $config = mergeOverwrite $config .way (dict "role" "matcher" "identity" $who) (deepCopy .values.config) (deepCopy $side.config) -}}
{{- $env := dict -}}
{{- range $section, $settings := $config -}}
{{- if kindIs "map" $settings -}}
{{- range $key, $value := $settings -}}
{{- $_ := set $env (printf "FIRSTFAULT_%s__%s" (upper $section) (upper $key)) (kindIs "string" $value | ternary $value (toJson $value)) -}}
{{- end -}}
{{- else -}}
{{- $_ := set $env (printf "FIRSTFAULT_%s" (upper $section)) (toString $settings) -}}
{{- end -}}
{{- end -}}
{{ toYaml $env }}
{{- end }}
