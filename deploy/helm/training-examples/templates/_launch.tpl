{{/*
How a training container starts torchrun. Every rank writes to files of its own in the shared folder; what torchrun itself says goes to
the console and to a file there. A stop reaches torchrun, and the container ends with its exit code, after its last word is written.
*/}}
{{- define "examples.command" -}}
command: [bash, -c]
args:
  - |
    {{- .script | nindent 4 }}
{{- end }}

{{- define "examples.torchrun" -}}
mkfifo /tmp/said
tee -a /var/log/train/agent.log < /tmp/said &
torchrun {{ .flags }} \
  --log-dir=/var/log/train --redirects=3 train.py > /tmp/said 2>&1 & job=$!
trap 'kill -TERM "$job"' TERM INT
wait "$job"; code=$?
while kill -0 "$job" 2>/dev/null; do wait "$job"; code=$?; done
wait
exit "$code"
{{- end }}

{{/* Container of the training: (dict "root" $ "name" N "flags" F). */}}
{{- define "examples.trainer" -}}
- name: {{ .name }}
  image: {{ .root.Values.image }}
  {{- include "examples.command" (dict "script" (include "examples.torchrun" .)) | nindent 2 }}
  {{- with .env }}
  env: {{- toYaml . | nindent 4 }}
  {{- end }}
  resources:
    limits:
      nvidia.com/gpu: {{ .root.Values.processesPerPod }}
  volumeMounts:
    {{- include "firstfault.sidecar.logMount" .root | nindent 4 }}
{{- end }}

{{/* What surrounds it in a pod's spec. */}}
{{- define "examples.pod" -}}
initContainers:
  {{- include "firstfault.sidecar" .root | nindent 2 }}
containers:
  {{- include "examples.trainer" . | nindent 2 }}
volumes:
  {{- include "firstfault.sidecar.volumes" .root | nindent 2 }}
{{- end }}
