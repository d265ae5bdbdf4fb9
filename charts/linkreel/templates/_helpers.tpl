{{/* The six services, in the order in which they are written. */}}
{{- define "linkreel.services" -}}auth console events links videos worker{{- end }}

{{- define "linkreel.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- if .Values.fullnameOverride }}{{ .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* Labels that select the pods of a component: dict "root" $ "name" NAME. */}}
{{- define "linkreel.selector" -}}
app.kubernetes.io/name: linkreel
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .name }}
{{- end }}

{{- define "linkreel.labels" -}}
{{ include "linkreel.selector" . }}
app.kubernetes.io/part-of: linkreel
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end }}

{{/* A service's values: its own block over the defaults, its own lists behind theirs. Callers use fromYaml. */}}
{{- define "linkreel.values" -}}
{{- $defaults := .root.Values.defaults }}
{{- $own := get .root.Values .name }}
{{- $values := mergeOverwrite (deepCopy $defaults) (deepCopy $own) }}
{{- range list "extraEnv" "extraEnvFrom" "extraVolumes" "extraVolumeMounts" "initContainers" }}
{{- $_ := set $values . (concat (default list (get $defaults .)) (default list (get $own .))) }}
{{- end }}
{{- toYaml $values }}
{{- end }}

{{/* Whether a service signs addresses with the key of the chart's storage. */}}
{{- define "linkreel.hasStorageKey" -}}{{ if and (include "linkreel.local" .root) (has .name (list "videos" "worker")) }}true{{ end }}{{- end }}

{{/* The volumes of a service's pods: dict "root" $ "name" NAME "values" VALUES. */}}
{{- define "linkreel.volumes" -}}
- {name: tmp, emptyDir: {sizeLimit: 64Mi}}
{{- if eq .name "links" }}
# Survives the container, but not the pod: a pod that is removed flushes first.
- {name: spool, emptyDir: {sizeLimit: {{ .values.spool.sizeLimit }}}}
{{- end }}
{{- if eq .name "worker" }}
{{- if .values.scratch.storageClassName }}
- name: scratch
  ephemeral:
    volumeClaimTemplate:
      spec:
        accessModes: [ReadWriteOnce]
        storageClassName: {{ .values.scratch.storageClassName }}
        resources: {requests: {storage: {{ .values.scratch.sizeLimit }}}}
{{- else }}
- {name: scratch, emptyDir: {sizeLimit: {{ .values.scratch.sizeLimit }}}}
{{- end }}
{{- end }}
{{- if include "linkreel.hasStorageKey" . }}
- {name: storage-key, secret: {secretName: {{ include "linkreel.storageKeySecret" .root }}, items: [{key: service-account.json, path: service-account.json}]}}
{{- end }}
{{- with .values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Where the service's container mounts them: dict "root" $ "name" NAME "values" VALUES. */}}
{{- define "linkreel.mounts" -}}
- {name: tmp, mountPath: /tmp}
{{- if eq .name "links" }}
- {name: spool, mountPath: /var/lib/linkreel/spool}
{{- end }}
{{- if eq .name "worker" }}
- {name: scratch, mountPath: /var/lib/linkreel/scratch}
{{- end }}
{{- if include "linkreel.hasStorageKey" . }}
- {name: storage-key, mountPath: /etc/linkreel/storage, readOnly: true}
{{- end }}
{{- with .values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* dict "root" $ "override" IMAGE "name" NAME */}}
{{- define "linkreel.image" -}}
{{- if .override }}{{ .override }}
{{- else }}
{{- $image := .root.Values.image }}
{{- printf "%s/%s:%s" $image.registry .name (default .root.Chart.AppVersion $image.tag) }}
{{- with get $image.digests .name }}{{ if not $image.tag }}@{{ . }}{{ end }}{{ end }}
{{- end }}
{{- end }}

{{- define "linkreel.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Ports that a service listens on, by name; every service also has the port admin. */}}
{{- define "linkreel.ports" -}}
{{- if eq . "auth" }}{api: 8080, operator: 8082, internal: 8090}
{{- else if eq . "links" }}{api: 8080, redirect: 8081, internal: 8090}
{{- else if eq . "console" }}{api: 8080}
{{- else if has . (list "events" "videos") }}{api: 8080, internal: 8090}
{{- else }}{}
{{- end }}
{{- end }}
{{- define "linkreel.adminPort" -}}9090{{- end }}

{{/* Annotations by which a Prometheus without the operator finds a pod. */}}
{{- define "linkreel.scraped" -}}
{{- if .Values.metrics.podAnnotations.enabled }}
prometheus.io/scrape: "true"
prometheus.io/port: {{ include "linkreel.adminPort" . | quote }}
{{- end }}
{{- end }}

{{/* Scheme and host, and the port if it is not the scheme's default: dict "root" $ "host" HOST */}}
{{- define "linkreel.url" -}}
{{- $values := .root.Values }}
{{- ternary "https" "http" $values.tls.enabled }}://{{ .host }}{{ with $values.hosts.port }}:{{ . }}{{ end }}
{{- end }}

{{- define "linkreel.secretName" -}}
{{- default (include "linkreel.fullname" .) .Values.secrets.existingSecret }}
{{- end }}

{{- define "linkreel.tlsSecret" -}}
{{- default (printf "%s-tls" (include "linkreel.fullname" .)) .Values.tls.secretName }}
{{- end }}

{{/* The Service of localcloud: the chart's own, unless the values name another. */}}
{{- define "linkreel.localcloud" -}}
{{- default (printf "%s-localcloud" (include "linkreel.fullname" .)) .Values.localcloud.service }}
{{- end }}
{{- define "linkreel.storageKeySecret" -}}
{{- default (printf "%s-storage-key" (include "linkreel.fullname" .)) .Values.localcloud.keySecret }}
{{- end }}
{{- define "linkreel.ownLocalcloud" -}}{{ if and (eq .Values.cloud.mode "localcloud") (not .Values.localcloud.service) }}true{{ end }}{{- end }}

{{/* Where localcloud gives backups, the Secret with their token, and the claim that keeps them. */}}
{{- define "linkreel.backupPort" -}}8087{{- end }}
{{- define "linkreel.backupSecret" -}}
{{- default (printf "%s-backup" (include "linkreel.fullname" .)) .Values.backup.tokenSecret }}
{{- end }}
{{- define "linkreel.backupClaim" -}}
{{- default (printf "%s-backup" (include "linkreel.fullname" .)) .Values.backup.volume.existingClaim }}
{{- end }}

{{- define "linkreel.local" -}}{{ if eq .Values.cloud.mode "localcloud" }}true{{ end }}{{- end }}

{{/* The audience in the tokens of storage's notifications. */}}
{{- define "linkreel.pushAudience" -}}
{{- default (printf "%s/hooks/storage" (include "linkreel.url" (dict "root" $ "host" .Values.hosts.base))) .Values.cloud.google.notification.audience }}
{{- end }}

{{/* All public hosts, as a YAML list. */}}
{{- define "linkreel.hosts" -}}
{{- $hosts := list .Values.hosts.base .Values.hosts.short }}
{{- if include "linkreel.local" . }}{{ $hosts = append $hosts .Values.hosts.upload }}{{ end }}
{{- toYaml (concat $hosts .Values.hosts.custom | uniq) }}
{{- end }}

{{/*
Which service answers which path of the base host; the first match wins.
auth answers all other paths: docs, the API document, the JSON 404.
*/}}
{{- define "linkreel.routes" -}}
- {path: /api/v1/links, service: links}
- {path: /api/v1/domains, service: links}
- {path: /api/v1/tags, service: links}
- {path: /api/v1/videos, service: videos}
- {path: /api/v1/events, service: events}
- {path: /api/v1/webhooks, service: events}
- {path: /app, service: console}
- {path: /v, service: videos}
- {path: /embed, service: videos}
- {path: /oembed, service: videos}
- {path: /hooks/storage, service: videos}
- {path: /, service: auth}
{{- end }}

{{/* How many addresses the proxies append to X-Forwarded-For; 0 goes by their networks. */}}
{{- define "linkreel.proxyHops" -}}
{{- if kindIs "invalid" .Values.trustedProxyHops }}{{ ternary 2 0 .Values.gke.enabled }}
{{- else }}{{ int .Values.trustedProxyHops }}
{{- end }}
{{- end }}

{{/* "true" if visitors reach links by plain HTTP without a proxy in front of it. */}}
{{- define "linkreel.directHTTP" -}}
{{- with .Values.tls.onDemand }}{{ if and .enabled .service.enabled .service.http }}true{{ end }}{{ end }}
{{- end }}

{{/* The networks whose X-Forwarded-For is believed, separated by commas. values.yaml says why each is here. */}}
{{- define "linkreel.trustedProxies" -}}
{{- if kindIs "invalid" .Values.trustedProxies -}}
10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,100.64.0.0/10,fc00::/7{{ if not (include "linkreel.directHTTP" .) }},127.0.0.6/32,::6/128{{ end }}
{{- else -}}
{{ join "," .Values.trustedProxies }}
{{- end }}
{{- end }}

{{/* "true" if a network (CIDR) has loopback addresses. ::/16 counts as a whole: of it, only ::1 and ::6 are in use. */}}
{{- define "linkreel.hasLoopback" -}}
{{- if contains ":" . }}{{ if regexMatch "^(:|0+:)" . }}true{{ end }}
{{- else }}
{{- $first := regexFind "^[0-9]+" . | int }}
{{- /* A prefix shorter than /8 leaves bits of the first byte open. */}}
{{- $size := 1 }}{{ range until (sub 8 (trimPrefix "/" (regexFind "/[0-9]+$" .) | int) | max 0 | int) }}{{ $size = mul $size 2 }}{{ end }}
{{- if eq (div $first $size) (div 127 $size) }}true{{ end }}
{{- end }}
{{- end }}

{{/* Where a pod may run, from the values of its component. */}}
{{- define "linkreel.placement" -}}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "linkreel.serviceAccount" -}}
{{- $values := include "linkreel.values" . | fromYaml }}
{{- if $values.serviceAccount.name }}{{ $values.serviceAccount.name }}
{{- else if $values.serviceAccount.create }}{{ include "linkreel.fullname" .root }}-{{ .name }}
{{- else }}default
{{- end }}
{{- end }}

{{/*
Changes when the data of secrets.existingSecret changes. The chart's own Secret never
changes after the first install, and a checksum of it would roll every pod at the first upgrade.
*/}}
{{- define "linkreel.secretChecksum" -}}
{{- with .Values.secrets.existingSecret }}
{{- (lookup "v1" "Secret" $.Release.Namespace .).data | default dict | toJson | sha256sum | trunc 16 }}
{{- else }}own
{{- end }}
{{- end }}

{{/*
A quantity, such as 30Gi, in bytes.
*/}}
{{- define "linkreel.bytes" -}}
{{- $units := dict "" 1 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18 "ki" 1024 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 "Ei" 1152921504606846976 }}
{{- mulf (regexFind "^[0-9.]+" . | float64) (regexFind "[EPTGMKk]?i?$" . | get $units) | floor | int64 }}
{{- end }}

{{/* Whether auth notes in a bucket what has ended: "true" or "". */}}
{{- define "linkreel.audit" -}}
{{- $auth := include "linkreel.values" (dict "root" $ "name" "auth") | fromYaml }}
{{- $google := eq .Values.cloud.mode "google" }}
{{- if and (ternary $google .Values.audit.enabled (kindIs "invalid" .Values.audit.enabled)) (not (hasKey $auth.env "LINKREEL_AUDIT_DIR")) }}true{{ end }}
{{- end }}
