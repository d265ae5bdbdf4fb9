{{/*
The number of pods in the manifest of a Deployment, or nothing: dict "root" $
"name" NAME "values" VALUES "scaled" BOOL.

A Deployment with a scaler has no number in its manifest, so that no upgrade undoes
the scaler's work. But if the number was in the previous manifest and is missing in
the next one, Helm removes it, and the API server sets it to 1. So the manifest keeps
the present number as long as Helm owns the field.

With server-side apply, Helm owns the field until somebody else sets it; the API
server records the owner. From then on the manifest must not contain the number: an
upgrade or a rollback with another number than the scaler's would be a conflict. With
client-side apply, Helm compares manifests, so once a manifest had the number, it has
to stay. The annotation records that.
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
{{- /* A manager that applies the selector applies the whole Deployment. */}}
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
