{{/*
The number of pods in the manifest of a Deployment, or nothing: dict "root" $
"name" NAME "values" VALUES "scaled" BOOL.

What a scaler scales has none, so that no upgrade undoes its work. But a manifest
that leaves out what the one before it had makes that one pod: Helm takes its
number back, and the API server fills in 1. So a Deployment keeps the number that
it has until that is no longer Helm's.

Applied by the server, it is Helm's as long as nobody else has set it, which the
API server writes down. We must not name it after that: an upgrade or a rollback
with another number than the scaler's would be a conflict. Patched by the client,
Helm compares manifests, so once the number was in one, it has to stay. The
annotation remembers it.
*/}}
{{- define "linkreel.replicas" -}}
{{- $namespace := .root.Release.Namespace }}
{{- $full := printf "%s-%s" (include "linkreel.fullname" .root) .name }}
{{- $live := dict }}
{{- if .scaled }}{{ $live = lookup "apps/v1" "Deployment" $namespace $full }}{{ end }}
{{- if not .scaled }}{{ .values.replicas }}
{{- else if $live }}
{{- $applied := false }}
{{- $helms := false }}
{{- $others := false }}
{{- range $live.metadata.managedFields }}
{{- $spec := dig "fieldsV1" "f:spec" dict . }}
{{- /* Whoever applies the selector applies the whole of it. */}}
{{- $whole := and (eq .operation "Apply") (hasKey $spec "f:selector") }}
{{- $applied = or $applied $whole }}
{{- if hasKey $spec "f:replicas" }}
{{- if $whole }}{{ $helms = true }}{{ else }}{{ $others = true }}{{ end }}
{{- end }}
{{- end }}
{{- $keep := and $helms (not $others) }}
{{- if not $applied }}
{{- $scaler := or (lookup "autoscaling/v2" "HorizontalPodAutoscaler" $namespace $full) (lookup "autoscaling/v2" "HorizontalPodAutoscaler" $namespace (printf "keda-hpa-%s" $full)) }}
{{- $keep = or (not $scaler) (eq "kept" (dig "metadata" "annotations" "linkreel.io/replicas" "" $live)) }}
{{- end }}
{{- if $keep }}
{{- max (int $live.spec.replicas) (int (ternary .values.autoscaling.minReplicas (dig "keda" "minReplicas" 0 .values) .values.autoscaling.enabled)) }}
{{- end }}
{{- end }}
{{- end }}
