{{/*
The environment of a service: dict "root" $ "name" NAME "values" VALUES. Each
name is a setting in the service's Config; tests/cluster fails on any other name.
*/}}
{{- define "linkreel.env" -}}
{{- $root := .root }}
{{- $full := include "linkreel.fullname" $root }}
{{- $secret := include "linkreel.secretName" $root }}
{{- $env := dict
  "LINKREEL_ADMIN_ADDR" (printf ":%s" (include "linkreel.adminPort" $root))
  "LINKREEL_DRAIN" (printf "%vs" .values.drainSeconds)
  "LINKREEL_GRACE" (printf "%vs" .values.graceSeconds)
  "LINKREEL_LOG_LEVEL" .values.logLevel
  "LINKREEL_LOG_FORMAT" .values.logFormat
  "LINKREEL_LOG_ACCESS" .values.logAccess
}}
{{- if and (eq .values.logFormat "google") $root.Values.cloud.google.project }}
{{- /* Log lines name their trace with it. */}}
{{- $_ := set $env "GOOGLE_CLOUD_PROJECT" $root.Values.cloud.google.project }}
{{- end }}
{{- range $port, $number := include "linkreel.ports" .name | fromYaml }}
{{- $_ := set $env (printf "LINKREEL_%s_ADDR" (upper $port)) (printf ":%v" $number) }}
{{- end }}
{{- if ne .name "worker" }}
{{- $_ := set $env "LINKREEL_TRUSTED_PROXIES" (include "linkreel.trustedProxies" $root) }}
{{- with include "linkreel.proxyHops" $root | int }}
{{- $_ := set $env "LINKREEL_TRUSTED_PROXY_HOPS" (toString .) }}
{{- end }}
{{- if ne .name "console" }}
{{- with $root.Values.corsOrigins }}
{{- $_ := set $env "LINKREEL_CORS_ORIGINS" (join "," .) }}
{{- end }}
{{- end }}
{{- $_ := set $env "LINKREEL_BASE_URL" (include "linkreel.url" (dict "root" $root "host" $root.Values.hosts.base)) }}
{{- end }}
{{- if eq .name "links" }}
{{- $_ := set $env "LINKREEL_SHORT_BASE_URL" (include "linkreel.url" (dict "root" $root "host" $root.Values.hosts.short)) }}
{{- end }}
{{- if has .name (list "console" "events" "links" "videos") }}
{{- $_ := set $env "LINKREEL_AUTH_URL" (printf "http://%s-auth:8090" $full) }}
{{- end }}
{{- if eq .name "auth" }}
{{- $_ := set $env "LINKREEL_LINKS_URL" (printf "http://%s-links:8090" $full) }}
{{- $_ := set $env "LINKREEL_VIDEOS_URL" (printf "http://%s-videos:8090" $full) }}
{{- $_ := set $env "LINKREEL_EVENTS_URL" (printf "http://%s-events:8090" $full) }}
{{- end }}
{{- if has .name (list "links" "videos") }}
{{- with $root.Values.abuseContact }}
{{- $_ := set $env "LINKREEL_ABUSE_CONTACT" . }}
{{- end }}
{{- end }}
{{- if and (ne .name "console") (not $root.Values.redis.enabled) }}
{{- with $root.Values.redis.external.caFile }}
{{- $_ := set $env "LINKREEL_REDIS_CA_FILE" . }}
{{- end }}
{{- end }}
{{- if and (eq .name "links") $root.Values.tls.onDemand.enabled }}
{{- with $root.Values.tls.onDemand }}
{{- $_ := set $env "LINKREEL_TLS_ADDR" ":8443" }}
{{- $_ := set $env "LINKREEL_ACME_DIRECTORY" .directory }}
{{- $_ := set $env "LINKREEL_ACME_ORDERS_PER_HOUR" (toString .ordersPerHour) }}
{{- with .email }}
{{- $_ := set $env "LINKREEL_ACME_EMAIL" . }}
{{- end }}
{{- with .caFile }}
{{- $_ := set $env "LINKREEL_ACME_CA_FILE" . }}
{{- end }}
{{- with .target }}
{{- $_ := set $env "LINKREEL_DOMAIN_TARGET" . }}
{{- end }}
{{- end }}
{{- end }}
{{- if eq .name "links" }}
{{- $_ := set $env "LINKREEL_SPOOL_DIR" "/var/lib/linkreel/spool" }}
{{- with $root.Values.links.pages.home }}
{{- $_ := set $env "LINKREEL_SHORT_HOME_URL" . }}
{{- end }}
{{- with $root.Values.links.pages.notFound }}
{{- $_ := set $env "LINKREEL_SHORT_NOT_FOUND_URL" . }}
{{- end }}
{{- with $root.Values.links.pages.expired }}
{{- $_ := set $env "LINKREEL_SHORT_EXPIRED_URL" . }}
{{- end }}
{{- with $root.Values.dnsResolver }}
{{- $_ := set $env "DNS_RESOLVER" . }}
{{- end }}
{{- end }}
{{- if eq .name "console" }}
{{- $api := list }}
{{- range include "linkreel.routes" $root | fromYamlArray }}
{{- if or (hasPrefix "/api/" .path) (eq .path "/") }}
{{- $api = append $api (printf "%s=http://%s-%s:8080" .path $full .service) }}
{{- end }}
{{- end }}
{{- $_ := set $env "LINKREEL_API_ROUTES" (join "," $api) }}
{{- end }}
{{- if and (eq .name "auth") $root.Values.oidc.issuer }}
{{- with $root.Values.oidc }}
{{- $_ := set $env "LINKREEL_OIDC_ISSUER" .issuer }}
{{- $_ := set $env "LINKREEL_OIDC_CLIENT_ID" .clientId }}
{{- $_ := set $env "LINKREEL_OIDC_NAME" .name }}
{{- $_ := set $env "LINKREEL_OIDC_SCOPES" (join "," .scopes) }}
{{- if .roles }}
{{- $roles := list }}
{{- range $group, $role := .roles }}
{{- $roles = append $roles (printf "%s:%s" $group $role) }}
{{- end }}
{{- $_ := set $env "LINKREEL_OIDC_ROLES" (join "," $roles) }}
{{- $_ := set $env "LINKREEL_OIDC_ACCOUNT" .account }}
{{- $_ := set $env "LINKREEL_OIDC_GROUPS_CLAIM" .groupsClaim }}
{{- $_ := set $env "LINKREEL_OIDC_MAX_AGE" .maxAge }}
{{- end }}
{{- end }}
{{- end }}
{{- if eq .name "events" }}
{{- with $root.Values.webhooks }}
{{- if .allowHTTP }}
{{- $_ := set $env "LINKREEL_WEBHOOK_ALLOW_HTTP" "true" }}
{{- end }}
{{- if .allowPrivate }}
{{- $_ := set $env "LINKREEL_WEBHOOK_ALLOW_PRIVATE" "true" }}
{{- end }}
{{- $_ := set $env "LINKREEL_WEBHOOK_LANES" (toString .lanes) }}
{{- with .resolver }}
{{- $_ := set $env "LINKREEL_WEBHOOK_RESOLVER" . }}
{{- end }}
{{- with .egressProxy }}
{{- $_ := set $env "LINKREEL_EGRESS_PROXY" . }}
{{- end }}
{{- end }}
{{- end }}
{{- if eq .name "worker" }}
{{- $_ := set $env "LINKREEL_SCRATCH_DIR" "/var/lib/linkreel/scratch" }}
{{- /* A process cannot see the limit of an emptyDir, but the pod is evicted for exceeding it. */}}
{{- $_ := set $env "LINKREEL_SCRATCH_BYTES" (include "linkreel.bytes" .values.scratch.sizeLimit) }}
{{- $_ := set $env "LINKREEL_WORKER_SLOTS" (toString .values.concurrency) }}
{{- $_ := set $env "LINKREEL_JAIL" .values.jail }}
{{- end }}
{{- if eq .name "console" }}
{{- /* console has no store, but its pages play from storage and upload to it. */}}
{{- if include "linkreel.local" $root }}
{{- $_ := set $env "LINKREEL_STORAGE_PUBLIC_URL" (include "linkreel.url" (dict "root" $root "host" $root.Values.hosts.upload)) }}
{{- end }}
{{- else if include "linkreel.local" $root }}
{{- $_ := set $env "LINKREEL_FIRESTORE_ENDPOINT" (printf "%s:8085" (include "linkreel.localcloud" $root)) }}
{{- /* localcloud is one process: while it restarts, calls wait instead of failing. */}}
{{- $_ := set $env "LINKREEL_FIRESTORE_TIMEOUT" "9s" }}
{{- else }}
{{- $_ := set $env "LINKREEL_FIRESTORE_PROJECT" $root.Values.cloud.google.project }}
{{- $_ := set $env "LINKREEL_FIRESTORE_DATABASE" $root.Values.cloud.google.database }}
{{- end }}
{{- if and (eq .name "auth") (include "linkreel.audit" $root) }}
{{- if include "linkreel.local" $root }}
{{- $_ := set $env "LINKREEL_AUDIT_BUCKET" (default $root.Values.localcloud.bucket $root.Values.audit.bucket) }}
{{- $_ := set $env "LINKREEL_STORAGE_ENDPOINT" (printf "http://%s:8086" (include "linkreel.localcloud" $root)) }}
{{- else }}
{{- $_ := set $env "LINKREEL_AUDIT_BUCKET" (default $root.Values.cloud.google.bucket $root.Values.audit.bucket) }}
{{- end }}
{{- end }}
{{- if has .name (list "videos" "worker") }}
{{- if include "linkreel.local" $root }}
{{- $_ := set $env "LINKREEL_STORAGE_BUCKET" $root.Values.localcloud.bucket }}
{{- $_ := set $env "LINKREEL_STORAGE_PUBLIC_URL" (include "linkreel.url" (dict "root" $root "host" $root.Values.hosts.upload)) }}
{{- $_ := set $env "LINKREEL_STORAGE_PUBLIC_DIAL" (printf "%s:8083" (include "linkreel.localcloud" $root)) }}
{{- $_ := set $env "LINKREEL_STORAGE_ENDPOINT" (printf "http://%s:8086" (include "linkreel.localcloud" $root)) }}
{{- $_ := set $env "LINKREEL_STORAGE_KEY_FILE" "/etc/linkreel/storage/service-account.json" }}
{{- else }}
{{- $_ := set $env "LINKREEL_STORAGE_BUCKET" $root.Values.cloud.google.bucket }}
{{- with $root.Values.cloud.google.signingServiceAccount }}
{{- $_ := set $env "LINKREEL_STORAGE_SERVICE_ACCOUNT" . }}
{{- end }}
{{- end }}
{{- end }}
{{- if eq .name "videos" }}
{{- if include "linkreel.local" $root }}
{{- $_ := set $env "LINKREEL_PUSH_AUDIENCE" (include "linkreel.pushAudience" $root) }}
{{- $_ := set $env "LINKREEL_PUSH_JWKS_URL" (printf "http://%s:8086/oauth2/v3/certs" (include "linkreel.localcloud" $root)) }}
{{- else if $root.Values.cloud.google.notification.serviceAccount }}
{{- $_ := set $env "LINKREEL_PUSH_AUDIENCE" (include "linkreel.pushAudience" $root) }}
{{- $_ := set $env "LINKREEL_PUSH_ACCOUNT" $root.Values.cloud.google.notification.serviceAccount }}
{{- end }}
{{- end }}
{{- with $root.Values.telemetry }}
{{- if .endpoint }}
{{- $_ := set $env "OTEL_TRACES_EXPORTER" "otlp" }}
{{- $_ := set $env "OTEL_EXPORTER_OTLP_ENDPOINT" .endpoint }}
{{- $_ := set $env "OTEL_EXPORTER_OTLP_PROTOCOL" .protocol }}
{{- $_ := set $env "OTEL_METRICS_EXPORTER" "none" }}
{{- $_ := set $env "OTEL_TRACES_SAMPLER" "parentbased_traceidratio" }}
{{- $_ := set $env "OTEL_TRACES_SAMPLER_ARG" (toString .sampleRatio) }}
{{- else }}
{{- $_ := set $env "OTEL_TRACES_EXPORTER" "none" }}
{{- $_ := set $env "OTEL_METRICS_EXPORTER" "none" }}
{{- end }}
{{- end }}
{{- range $key, $value := mergeOverwrite $env .values.env }}
- {name: {{ $key }}, value: {{ $value | quote }}}
{{- end }}
# A separate token, since only auth may hold the operator's.
- name: LINKREEL_PROFILE_TOKEN
  valueFrom: {secretKeyRef: {name: {{ $secret }}, key: profile-token, optional: true}}
{{- if and (include "linkreel.local" $root) (ne .name "console") }}
- name: LINKREEL_LOCALCLOUD_TOKEN
  valueFrom: {secretKeyRef: {name: {{ include "linkreel.storageKeySecret" $root }}, key: token}}
{{- end }}
{{- if eq .name "auth" }}
- name: LINKREEL_ADMIN_TOKEN
  valueFrom: {secretKeyRef: {name: {{ $secret }}, key: admin-token}}
{{- end }}
{{- /* One token for each service that calls auth or is called by it; only auth has them all. */}}
{{- if eq .name "auth" }}
- name: LINKREEL_INTERNAL_TOKEN
  valueFrom: {secretKeyRef: {name: {{ $secret }}, key: internal-token}}
{{- range list "links" "videos" "events" "console" }}
- name: LINKREEL_{{ upper . }}_TOKEN
  valueFrom: {secretKeyRef: {name: {{ $secret }}, key: {{ . }}-token}}
{{- end }}
{{- else if ne .name "worker" }}
- name: LINKREEL_INTERNAL_TOKEN
  valueFrom: {secretKeyRef: {name: {{ $secret }}, key: {{ .name }}-token}}
{{- end }}
{{- if and (eq .name "links") $root.Values.tls.onDemand.enabled }}
{{- with $root.Values.tls.onDemand }}
- name: LINKREEL_CERTIFICATE_KEY
  valueFrom: {secretKeyRef: {name: {{ default $secret .existingSecret }}, key: {{ ternary .existingSecretKey "certificate-key" (not (empty .existingSecret)) }}}}
{{- end }}
{{- end }}
{{- if eq .name "events" }}
- name: LINKREEL_WEBHOOK_SECRET_KEY
  valueFrom: {secretKeyRef: {name: {{ $secret }}, key: webhook-secret-key}}
{{- end }}
{{- if eq .name "videos" }}
- name: LINKREEL_TOKEN_SECRET
  valueFrom: {secretKeyRef: {name: {{ $secret }}, key: token-secret}}
{{- end }}
{{- if and (eq .name "auth") $root.Values.oidc.issuer $root.Values.oidc.existingSecret }}
- name: LINKREEL_OIDC_CLIENT_SECRET
  valueFrom: {secretKeyRef: {name: {{ $root.Values.oidc.existingSecret }}, key: {{ $root.Values.oidc.existingSecretKey }}}}
{{- end }}
{{- if eq .name "console" }}
{{- else if $root.Values.redis.enabled }}
- {name: LINKREEL_REDIS_URL, value: "redis://{{ $full }}-redis:6379/0"}
# Separate from the address, in which some characters would have another meaning.
- name: LINKREEL_REDIS_PASSWORD
  valueFrom: {secretKeyRef: {name: {{ $secret }}, key: redis-password}}
{{- else if $root.Values.redis.external.existingSecret }}
- name: LINKREEL_REDIS_URL
  valueFrom: {secretKeyRef: {name: {{ $root.Values.redis.external.existingSecret }}, key: {{ $root.Values.redis.external.existingSecretKey }}}}
{{- else }}
- {name: LINKREEL_REDIS_URL, value: {{ $root.Values.redis.external.url | quote }}}
{{- end }}
{{- with $root.Values.telemetry.headersSecret }}
- name: OTEL_EXPORTER_OTLP_HEADERS
  valueFrom: {secretKeyRef: {name: {{ . }}, key: headers}}
{{- end }}
{{- with .values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}
