{{/*
Alerts besides the burn rates. Each has its section in docs/operations.md, which
tests/cluster compares with this list.
*/}}
{{- define "linkreel.alerts" -}}
{{- $runbook := .Values.metrics.prometheusRule.runbookURL }}
{{- $here := printf "namespace=%q" .Release.Namespace }}
- alert: LinkreelRedirectsSlow
  expr: linkreel:redirects_latency:p99_5m > 0.05
  for: 10m
  labels: {severity: warning}
  annotations:
    summary: "One redirect in a hundred takes longer than 50 ms."
    runbook_url: {{ $runbook }}#linkreelredirectsslow
- alert: LinkreelRedisUnreachable
  expr: sum(rate(linkreel_auth_redis_failures_total{ {{- $here -}} }[5m])) > 0.1
  for: 2m
  labels: {severity: warning}
  annotations:
    summary: "Calls to Redis fail; limits are local and clicks wait in the spool."
    runbook_url: {{ $runbook }}#linkreelredisunreachable
- alert: LinkreelClicksLost
  expr: sum(increase(linkreel_clicks_lost_total{ {{- $here -}} }[15m])) > 0
  labels: {severity: critical}
  annotations:
    summary: "Clicks could not be counted and are lost."
    runbook_url: {{ $runbook }}#linkreelclickslost
- alert: LinkreelClicksNotCounted
  expr: |
    sum(rate(linkreel_redirect_duration_seconds_count{ {{- $here }}, status="302"}[10m])) > 0.1
    and sum(rate(linkreel_clicks_counted_total{ {{- $here -}} }[10m])) == 0
  for: 10m
  labels: {severity: warning}
  annotations:
    summary: "Redirects happen, but no click is counted."
    runbook_url: {{ $runbook }}#linkreelclicksnotcounted
- alert: LinkreelKeyChecksRefused
  expr: sum(rate(linkreel_auth_checks_degraded_total{ {{- $here }}, how="unavailable"}[5m])) > 0
  for: 1m
  labels: {severity: critical}
  annotations:
    summary: "Keys cannot be verified: API calls get a 503."
    runbook_url: {{ $runbook }}#linkreelkeychecksrefused
- alert: LinkreelEventsStuck
  expr: max(linkreel_events_waiting_age_seconds{ {{- $here -}} }) > 60
  for: 5m
  labels: {severity: warning}
  annotations:
    summary: "Events have waited for more than a minute for their place in the feed."
    runbook_url: {{ $runbook }}#linkreeleventsstuck
- alert: LinkreelWebhooksLate
  expr: max(linkreel_webhooks_due_age_seconds{ {{- $here -}} }) > 300
  for: 10m
  labels: {severity: warning}
  annotations:
    summary: "Webhook deliveries have been due for more than five minutes."
    runbook_url: {{ $runbook }}#linkreelwebhookslate
- alert: LinkreelJanitorStopped
  # The janitor runs once a day, so the alert stays on until its next run.
  expr: sum(increase(linkreel_videos_janitor_turns_total{ {{- $here }}, outcome="stopped"}[25h])) > 0
  labels: {severity: critical}
  annotations:
    summary: "Many objects in the bucket belong to no record of the database. None was removed."
    runbook_url: {{ $runbook }}#linkreeljanitorstopped
{{- if .Values.tls.onDemand.enabled }}
- alert: LinkreelCertificatesFailing
  # Owners must fix failures of single names. This alert is about the authority, the connection to it, or the limit of orders.
  expr: |
    sum(increase(linkreel_certificate_orders_total{ {{- $here }}, outcome=~"failed|limited"}[1h])) > 5
    and sum(increase(linkreel_certificate_orders_total{ {{- $here }}, outcome=~"failed|limited"}[1h])) > sum(increase(linkreel_certificate_orders_total{ {{- $here }}, outcome="issued"}[1h]))
  for: 30m
  labels: {severity: warning}
  annotations:
    summary: "Most orders of certificates for custom domains fail."
    runbook_url: {{ $runbook }}#linkreelcertificatesfailing
{{- end }}
- alert: LinkreelWebhooksFailing
  expr: |
    sum(linkreel_webhooks_failing{ {{- $here -}} }) > 10
    and sum(rate(linkreel_webhooks_attempts_total{ {{- $here }}, outcome="unanswered"}[30m])) > 9 * sum(rate(linkreel_webhooks_attempts_total{ {{- $here }}, outcome="delivered"}[30m]))
  for: 15m
  labels: {severity: warning}
  annotations:
    summary: "Hardly any webhook receiver answers: outgoing traffic may be blocked."
    runbook_url: {{ $runbook }}#linkreelwebhooksfailing
- alert: LinkreelVideosFailing
  expr: |
    sum(rate(linkreel_job_duration_seconds_count{ {{- $here }}, result=~"retried|lost"}[30m]))
    > 0.1 * sum(rate(linkreel_job_duration_seconds_count{ {{- $here -}} }[30m]))
  for: 10m
  labels: {severity: warning}
  annotations:
    summary: "More than a tenth of transcoding jobs are retried or lost."
    runbook_url: {{ $runbook }}#linkreelvideosfailing
- alert: LinkreelWorkersIdle
  expr: |
    sum(increase(http_server_request_duration_seconds_count{ {{- $here }}, http_route="/api/v1/videos", http_request_method="POST", http_response_status_code="201"}[1h])) > 5
    and sum(increase(linkreel_job_duration_seconds_count{ {{- $here -}} }[1h])) == 0
  for: 30m
  labels: {severity: warning}
  annotations:
    summary: "Videos are created, but no worker has finished a job for an hour."
    runbook_url: {{ $runbook }}#linkreelworkersidle
{{- range $name := splitList " " (include "linkreel.services" .) }}
- alert: LinkreelServiceGone
  # Without traffic, rates are empty and never fire, so a missing service needs its own alert.
  expr: absent(up{ {{- $here }}, job="{{ include "linkreel.fullname" $ }}-{{ $name }}"} == 1)
  for: 3m
  labels: {severity: critical, service: {{ $name }}}
  annotations:
    summary: "No pod of {{ $name }} can be scraped."
    runbook_url: {{ $runbook }}#linkreelservicegone
{{- end }}
{{- if or .Values.redis.enabled (include "linkreel.ownLocalcloud" .) }}
- alert: LinkreelVolumeFilling
  expr: |
    kubelet_volume_stats_available_bytes{ {{- $here }}, persistentvolumeclaim=~".*{{ include "linkreel.fullname" . }}-(redis|localcloud)-[0-9]+"}
    < 0.15 * kubelet_volume_stats_capacity_bytes{ {{- $here }}, persistentvolumeclaim=~".*{{ include "linkreel.fullname" . }}-(redis|localcloud)-[0-9]+"}
  for: 10m
  labels: {severity: warning}
  annotations:
    summary: "A volume of Redis or localcloud has less than 15 % left."
    runbook_url: {{ $runbook }}#linkreelvolumefilling
{{- end }}
{{- if .Values.metrics.probe.enabled }}
- alert: LinkreelUnreachable
  expr: probe_success{ {{- $here }}, job="{{ include "linkreel.fullname" . }}-probe"} == 0
  for: 2m
  labels: {severity: critical}
  annotations:
    summary: "A public address does not answer from outside."
    runbook_url: {{ $runbook }}#linkreelunreachable
{{- end }}
- alert: LinkreelPodDown
  expr: up{ {{- $here }}, job=~".*linkreel.*"} == 0
  for: 5m
  labels: {severity: warning}
  annotations:
    summary: "A pod cannot be scraped."
    runbook_url: {{ $runbook }}#linkreelpoddown
{{- end }}
