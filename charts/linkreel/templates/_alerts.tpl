{{/*
Alerts besides those of the budgets, as a YAML list. rules.yaml adds labels and the link to
the section of docs/operations.md; tests/cluster plays each alert's outage with promtool.

An expression must fire in a total outage too, when a series that it compares with has never
been there. So it says "A unless B" or "(B or vector(0))", not "A and B == 0". Counts of
something that happens a few times a day also need a least number: one of one is a large share.
*/}}
{{- define "linkreel.alerts" -}}
{{- $here := include "linkreel.here" . }}
{{- $full := include "linkreel.fullname" . }}
- alert: LinkreelRedirectsSlow
  expr: linkreel:redirects_latency:p99_5m{ {{- $here -}} } > 0.05
  for: 10m
  labels: {severity: warning}
  summary: "One redirect in a hundred takes longer than 50 ms."
- alert: LinkreelAPISlow
  expr: linkreel:api_latency:p99_5m{ {{- $here -}} } > 1
  for: 10m
  labels: {severity: warning}
  summary: "One API call in a hundred takes longer than a second."
- alert: LinkreelDependencyAway
  # The average also catches a dependency that comes and goes.
  expr: max by (dependency) (avg_over_time(linkreel_dependency_away{ {{- $here }}, dependency!="Redis"}[5m])) > 0.2
  for: 1m
  labels: {severity: critical}
  summary: "{{ `{{ $labels.dependency }}` }} does not answer: calls that need it fail at once."
- alert: LinkreelDependencyRefuses
  # It answers, so it is not away. Such calls fail until somebody changes a setting.
  expr: sum by (dependency, reason) (increase(linkreel_dependency_failures_total{ {{- $here }}, dependency!="Redis", reason=~"refused|quota|index"}[5m])) > 10
  for: 1m
  labels: {severity: warning}
  summary: "{{ `{{ $labels.dependency }}` }} refuses calls ({{ `{{ $labels.reason }}` }})."
- alert: LinkreelFirestoreSlow
  {{- $calls := printf "%s, dependency=\"Firestore\", operation=~\"get|query|commit\"" $here }}
  expr: |
    histogram_quantile(0.95, sum by (le) (rate(linkreel_dependency_call_seconds_bucket{ {{- $calls -}} }[5m]))) > 0.5
    and sum(increase(linkreel_dependency_call_seconds_count{ {{- $calls -}} }[5m])) > 50
  for: 10m
  labels: {severity: warning}
  summary: "One call to Firestore in twenty takes longer than half a second."
- alert: LinkreelRedisUnreachable
  # Of thousands of limits a second, some are always too late. A full Redis still answers reads; the reason says so.
  {{- $refuses := printf "increase(linkreel_dependency_failures_total{%s, dependency=\"Redis\", reason=~\"memory|disk\"}[5m])" $here }}
  {{- $asked := printf "sum(rate(linkreel_auth_redis_failures_total{%s}[5m]))" $here }}
  {{- $away := printf "max(avg_over_time(linkreel_dependency_away{%s, dependency=\"Redis\"}[5m])) > 0.2" $here }}
  {{- $away = printf "(%s or (%s > 0.1 and %s > 0.01 * (sum(rate(linkreel_dependency_call_seconds_count{%s, dependency=\"Redis\"}[5m])) or vector(0))))" $away $asked $asked $here }}
  expr: |
    sum by (reason) ({{ $refuses }}) > 10 and on () {{ $away }}
    or label_replace({{ $away }}, "reason", "away", "", "") unless on () sum({{ $refuses }}) > 10
  for: 2m
  labels: {severity: warning}
  summary: "Redis does not answer or refuses writes ({{ `{{ $labels.reason }}` }}); limits are local and clicks wait in the spool."
- alert: LinkreelRedisSlow
  # A Redis that is away has its own alert, and its calls last as long as their time limits. The many fast calls of
  # one component, or of one Redis, must not hide the slow ones of another.
  {{- $calls = printf "%s, dependency=~\"Redis.*\"" $here }}
  expr: |
    histogram_quantile(0.5, sum by (le, component, dependency) (rate(linkreel_dependency_call_seconds_bucket{ {{- $calls -}} }[5m]))) > 0.01
    and sum by (component, dependency) (increase(linkreel_dependency_call_seconds_count{ {{- $calls -}} }[5m])) > 50
    unless on () {{ $away }}
  for: 10m
  labels: {severity: warning}
  summary: "{{ `{{ $labels.dependency }}` }} answers, but every second call of {{ `{{ $labels.component }}` }} takes longer than 10 ms."
- alert: LinkreelClicksSpooling
  # With a full Redis, single batches are refused: clicks go to the disk while no partition spools for long.
  # A click now and then for which Redis was too slow is no reason to look.
  expr: |
    max(linkreel_clicks_spooling{ {{- $here -}} }) > 0
    or sum(rate(linkreel_clicks_spooled_total{ {{- $here -}} }[2m]))
    > 0.05 * (sum(rate(linkreel_redirect_duration_seconds_count{ {{- $here }}, status="302"}[2m])) or vector(0))
  for: 5m
  labels: {severity: warning}
  summary: "For five minutes, clicks have gone to the pods' disks instead of Redis."
- alert: LinkreelClicksLost
  expr: sum(increase(linkreel_clicks_lost_total{ {{- $here -}} }[15m])) > 0
  labels: {severity: critical}
  summary: "Clicks could not be counted and are lost."
- alert: LinkreelClicksSetAside
  expr: sum(increase(linkreel_clicks_set_aside_total{ {{- $here -}} }[1h])) > 0
  labels: {severity: warning}
  summary: "Firestore refuses to count some clicks. They are kept, but not counted."
- alert: LinkreelProducersMissing
  expr: sum(increase(linkreel_clicks_producers_missing_total{ {{- $here -}} }[1h])) > 0
  labels: {severity: warning}
  summary: "A pod of links ended without flushing, and its spool is gone."
- alert: LinkreelClicksNotCounted
  expr: |
    sum(rate(linkreel_redirect_duration_seconds_count{ {{- $here }}, status="302"}[10m])) > 0.1
    unless sum(rate(linkreel_clicks_counted_total{ {{- $here -}} }[10m])) > 0
    or max(last_over_time(linkreel_waiting_oldest_seconds{ {{- $here }}, of="click_batches"}[3m])) > 300
  for: 10m
  labels: {severity: warning}
  summary: "Redirects happen, but clicks are not counted."
- alert: LinkreelKeyChecksRefused
  expr: sum(increase(linkreel_auth_checks_degraded_total{ {{- $here }}, how="unavailable"}[5m])) > 3
  for: 1m
  labels: {severity: critical}
  summary: "Keys cannot be verified: API calls get a 503."
- alert: LinkreelEventsStuck
  expr: max(linkreel_events_waiting_age_seconds{ {{- $here -}} }) > 60
  for: 5m
  labels: {severity: warning}
  summary: "Events have waited for more than a minute for their place in the feed."
- alert: LinkreelWebhooksLate
  # During the pause after a restore, deliveries stay due. LinkreelRecoveryPaused reminds of it.
  expr: |
    max(linkreel_webhooks_due_age_seconds{ {{- $here -}} }) > 300
    unless max(linkreel_restored_paused{ {{- $here }}, what="webhooks"}) > 0
  for: 10m
  labels: {severity: warning}
  summary: "Webhook deliveries have been due for more than five minutes."
- alert: LinkreelWebhooksFailing
  expr: |
    sum(linkreel_webhooks_failing{ {{- $here -}} }) > 10
    and sum(rate(linkreel_webhooks_attempts_total{ {{- $here }}, outcome="unanswered"}[10m]))
    > 9 * (sum(rate(linkreel_webhooks_attempts_total{ {{- $here }}, outcome="delivered"}[10m])) or vector(0))
  for: 15m
  labels: {severity: warning}
  summary: "Hardly any webhook receiver answers: outgoing traffic may be blocked."
- alert: LinkreelWebhooksUnsigned
  expr: sum(increase(linkreel_webhooks_attempts_total{ {{- $here }}, outcome="unsigned"}[15m])) > 0
  for: 1m
  labels: {severity: warning}
  summary: "Webhooks' secrets cannot be decrypted, so their messages are not sent."
- alert: LinkreelJanitorStopped
  # The janitor runs once a day, so the alert stays on until its next run.
  expr: sum(increase(linkreel_videos_janitor_turns_total{ {{- $here }}, outcome="stopped"}[25h])) > 0
  labels: {severity: critical}
  summary: "Many objects in the bucket belong to no record of the database. None was removed."
- alert: LinkreelRecoveryPaused
  # Pods come and go in a day, so the last value of the last hour counts.
  expr: max by (what) (last_over_time(linkreel_restored_paused{ {{- $here -}} }[1h])) > 0
  for: 24h
  labels: {severity: warning}
  summary: "Something has been paused since a restore a day ago, until you resume it ({{ `{{ $labels.what }}` }})."
- alert: LinkreelTrailNotWritten
  expr: time() - min(linkreel_trail_waiting_since_timestamp_seconds{ {{- $here -}} } > 0) > 300
  for: 1m
  labels: {severity: critical}
  summary: "auth cannot write the revocation trail. Calls that end a right get a 503."
{{- if .Values.tls.onDemand.enabled }}
- alert: LinkreelCertificatesFailing
  # Owners must fix failures of single names. This alert is about the authority, the connection to it, or the limit of orders.
  expr: |
    sum(increase(linkreel_certificate_orders_total{ {{- $here }}, outcome=~"failed|limited"}[1h])) > 5
    and sum(increase(linkreel_certificate_orders_total{ {{- $here }}, outcome=~"failed|limited"}[1h]))
    > (sum(increase(linkreel_certificate_orders_total{ {{- $here }}, outcome="issued"}[1h])) or vector(0))
  for: 30m
  labels: {severity: warning}
  summary: "Most orders of certificates for custom domains fail."
- alert: LinkreelCertificatesLate
  expr: max(last_over_time(linkreel_waiting_oldest_seconds{ {{- $here }}, of="certificates"}[3m])) > 3600
  for: 10m
  labels: {severity: warning}
  summary: "Certificates have been due for an hour, and no pod has tried to order them."
- alert: LinkreelCertificateEnding
  # Certificates are renewed when a third of their life is left, which is two days and five hours for the shortest that Let's Encrypt issues.
  expr: min(last_over_time(linkreel_certificates_earliest_expiry_timestamp_seconds{ {{- $here -}} }[3m])) - time() < 2 * 86400
  for: 30m
  labels: {severity: warning}
  summary: "A certificate of a custom domain ends within two days, and its renewal fails."
{{- end }}
- alert: LinkreelVideosFailing
  # A worker that is killed counts nothing any more. Its videos fail in the end, as INTERNAL.
  expr: |
    sum(rate(linkreel_job_duration_seconds_count{ {{- $here }}, result=~"retried|lost"}[30m]))
    > 0.1 * sum(rate(linkreel_job_duration_seconds_count{ {{- $here -}} }[30m]))
    and sum(increase(linkreel_job_duration_seconds_count{ {{- $here }}, result=~"retried|lost"}[30m])) > 2
    or sum(increase(linkreel_videos_moves_total{ {{- $here }}, status="failed", code="INTERNAL"}[30m]))
    > 0.1 * sum(increase(linkreel_videos_moves_total{ {{- $here }}, status=~"ready|failed"}[30m]))
    and sum(increase(linkreel_videos_moves_total{ {{- $here }}, status="failed", code="INTERNAL"}[30m])) > 2
  for: 10m
  labels: {severity: warning}
  summary: "More than a tenth of transcoding jobs are retried or lost, or of videos fail through no fault of the file."
- alert: LinkreelVideosWaiting
  expr: |
    max by (for) (last_over_time(linkreel_waiting_oldest_seconds{ {{- $here }}, of="videos", for="worker"}[3m])) > 900
    or max by (for) (last_over_time(linkreel_waiting_oldest_seconds{ {{- $here }}, of="videos", for=~"sweep|removal"}[3m])) > 3600
  for: 5m
  labels: {severity: warning}
  summary: "Videos have waited too long for: {{ `{{ $labels.for }}` }}."
- alert: LinkreelErasuresLate
  expr: max(last_over_time(linkreel_waiting_oldest_seconds{ {{- $here }}, of="erasures"}[3m])) > 3600
  for: 5m
  labels: {severity: warning}
  summary: "An account should have been erased within the hour, and is not."
{{- $worker := include "linkreel.values" (dict "root" $ "name" "worker") | fromYaml }}
{{- $names := splitList " " (include "linkreel.services" .) }}
{{- if include "linkreel.ownLocalcloud" . }}{{ $names = append $names "localcloud" }}{{ end }}
{{- range $name := $names }}
{{- $up := printf "up{%s, component=%q}" $here $name }}
{{- /* Without work there is no worker then, and that is as it should be. */}}
{{- if not (and (eq $name "worker") $worker.keda.enabled (eq (int $worker.keda.minReplicas) 0)) }}
- alert: LinkreelServiceGone
  # Without traffic, rates are empty and never fire, so a missing service needs its own alert.
  {{- if eq $.Values.metrics.rules.kind "Rules" }}
  # Not absent(): where nothing collects this release's pods, it would page for ever.
  expr: max(max_over_time({{ $up }}[1d])) == 1 unless max({{ $up }}) == 1
  {{- else }}
  expr: absent({{ $up }} == 1)
  {{- end }}
  for: 3m
  labels: {severity: critical, service: {{ $name }}}
  summary: "No pod of {{ $name }} can be scraped."
{{- end }}
{{- end }}
{{- if include "linkreel.ownLocalcloud" . }}
- alert: LinkreelLocalcloudReadOnly
  expr: sum by (reason) (increase(localcloud_commit_failures_total{ {{- $here -}} }[5m])) > 0
  for: 1m
  labels: {severity: critical}
  summary: "localcloud cannot write ({{ `{{ $labels.reason }}` }}): every change fails."
{{- end }}
{{- if or .Values.redis.enabled (include "linkreel.ownLocalcloud" .) }}
{{- $claims := printf "namespace=%q, persistentvolumeclaim=~\"data-%s-(redis|localcloud)-0|%s-localcloud-objects|%s-backup\"" .Release.Namespace $full $full $full }}
- alert: LinkreelVolumeFilling
  expr: kubelet_volume_stats_available_bytes{ {{- $claims -}} } < 0.15 * kubelet_volume_stats_capacity_bytes{ {{- $claims -}} }
  for: 10m
  labels: {severity: warning}
  summary: "A volume of Redis, localcloud or the backups has less than 15 % left."
{{- end }}
{{- if .Values.backup.enabled }}
{{- $job := printf "{namespace=%q, cronjob=\"%s-backup\"}" .Release.Namespace $full }}
- alert: LinkreelBackupLate
  # A job that has never succeeded has only the time at which it was created.
  expr: time() - max(kube_cronjob_status_last_successful_time{{ $job }} or kube_cronjob_created{{ $job }}) > {{ .Values.backup.alertHours }} * 3600
  for: 10m
  labels: {severity: warning}
  summary: "No backup has succeeded for {{ .Values.backup.alertHours }} hours."
{{- end }}
{{- if .Values.metrics.probe.enabled }}
- alert: LinkreelUnreachable
  expr: probe_success{ {{- $here -}} } == 0
  for: 2m
  labels: {severity: critical}
  summary: "A public address does not answer from outside."
{{- end }}
- alert: LinkreelPodDown
  expr: up{ {{- $here -}} } == 0
  for: 5m
  labels: {severity: warning}
  summary: "A pod cannot be scraped."
- alert: LinkreelPodRestarts
  # A short life ends the wait of alerts about pods that are gone. Some lives are too short for a scrape to see the start.
  expr: changes(process_start_time_seconds{ {{- $here -}} }[30m]) > 2 or changes(up{ {{- $here -}} }[30m]) > 5
  labels: {severity: warning}
  summary: "A pod starts again and again."
{{- end }}
