#!/bin/bash
# Install the chart on the running cluster and test it. It prints a line with figures for each
# successful check, and stops at the first one that fails.
#
#   test.sh [CASE]...      default: all, in the order below
#
# ROLLOUTS (10) restarts of each service, RATE (200) requests a second during them, LINKS
# (10,000) links before the cases upgrade and backup.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

namespace=linkreel release=linkreel
rollouts=${ROLLOUTS:-10} rate=${RATE:-200}
chart=$root/charts/linkreel values=$root/charts/linkreel/ci/cluster.yaml
images=$root/dist/images services=(auth console events links videos worker)
work=$state/test
base=http://linkreel.localhost:$http_port short=http://go.linkreel.localhost:$http_port
mkdir -p "$work"

k() { kubectl --namespace $namespace "$@"; }
h() { helm --namespace $namespace --qps 200 --burst-limit 400 "$@"; }
ok() { echo "ok   $*"; }
trap 'echo "failed at line $LINENO of case ${case-}" >&2' ERR
trap 'cleanup' EXIT

background=()
cleanup() {
	local pid
	for pid in "${background[@]}"; do kill "$pid" 2>/dev/null || true; done
}

# troubles WHY: print the state of the pods and fail.
troubles() {
	k get pods -o wide
	k get events --field-selector type=Warning --sort-by .lastTimestamp | tail -n 20
	die "$*"
}

# fails COMMAND...: COMMAND must fail.
fails() { if "$@" >/dev/null 2>&1; then die "should have failed: $*"; fi; }

# check COMMAND ...: run the check program, which connects to the ingress for every host.
check() {
	operator
	(checking "$@")
}
# checking COMMAND ...: the same, but the program replaces this shell and so has this shell's PID.
checking() {
	local command=$1
	shift
	LINKREEL_ADMIN_TOKEN=$(token) exec "$images/bin/check" "$command" --base "$base" --short "$short" --operator "$(operator_url)" \
		--via "linkreel.localhost/=127.0.0.1:$http_port" --via "go.linkreel.localhost/=127.0.0.1:$http_port" \
		--via "media.linkreel.localhost/=127.0.0.1:$http_port" "$@"
}
token() { k get secret $release -o jsonpath='{.data.admin-token}' | base64 -d; }

# operator: forward the operator API to a port of the host, because no policy allows access to it.
operator() {
	if [ -n "${operator_pid-}" ] && kill -0 "$operator_pid" 2>/dev/null && reachable; then return; fi
	kubectl --namespace $namespace port-forward service/$release-auth :8082 >"$work/operator.txt" 2>/dev/null &
	operator_pid=$!
	background+=("$operator_pid")
	await 20 reachable
}
reachable() { curl -s -o /dev/null --max-time 2 "$(operator_url)"; }
# operator_url: kubectl prints the port that it has chosen.
operator_url() { sed -n 's/^Forwarding from \(127[0-9.:]*\) .*/http:\/\/\1/p' "$work/operator.txt"; }

# Values of every release: images keep their names here, so only the annotation distinguishes new ones from old ones.
ours() { printf '%s\n' --values "$values" --set "hosts.port=$http_port,defaults.podAnnotations.images=sum-$(cat "$work"/*.sum | sha256sum | head -c 12)"; }
# upgrade VALUE...: helm upgrade with these values on top.
upgrade() {
	local ours
	mapfile -t ours < <(ours)
	h upgrade $release "$chart" "${ours[@]}" "$@" --wait --timeout 300s >/dev/null
}

# under KIND LABEL COMMAND...: no request of KIND may fail while COMMAND runs.
under() {
	local kind=$1 label=$2 pid output wanted=$rate
	shift 2
	# Serving a page costs as much as several API calls.
	[ "$kind" != console ] || wanted=$((rate / 10))
	operator
	checking load --kind "$kind" --rate "$wanted" --traffic "$work/traffic.json" >"$work/load.txt" 2>&1 &
	pid=$!
	background+=("$pid")
	sleep 2
	"$@" >"$work/under.txt" 2>&1 || { cat "$work/under.txt"; troubles "$label failed"; }
	sleep 2
	kill -TERM $pid   # A shell's background processes ignore SIGINT.
	wait $pid || { cat "$work/load.txt"; die "$label: requests failed"; }
	output=$(<"$work/load.txt")
	ok "$label, $wanted/s wanted: $output"
}

# keeping WHAT COMMAND...: the program check WHAT (ledger, people) writes while COMMAND runs. Every write that the
# services acknowledged must exist afterwards.
keeping() {
	local what=$1 pid
	shift
	await 60 reached
	operator
	checking "$what" >"$work/$what.txt" 2>&1 &
	pid=$!
	background+=("$pid")
	await 30 grep -q begun "$work/$what.txt"
	sleep 5
	"$@" >"$work/under.txt" 2>&1 || { cat "$work/under.txt"; troubles "$* failed"; }
	sleep 5
	kill -TERM $pid
	wait $pid || { cat "$work/$what.txt"; die "$*: an acknowledged write is lost"; }
}

pod_of() { k get pods -l "app.kubernetes.io/component=$1,probe!=caller" --field-selector status.phase=Running -o jsonpath='{.items[0].metadata.name}'; }
restart() { k rollout restart deployment/$release-"$1" && k rollout status deployment/$release-"$1" --timeout 180s; }
restarts() {
	local i
	for ((i = 0; i < rollouts; i++)); do restart "$1"; done
}
settled() {
	local lines
	lines=$(k get pods --no-headers -l "app.kubernetes.io/instance=$release,app.kubernetes.io/component notin (test, backup)")
	! grep -qv ' 1/1 *Running ' <<<"$lines"
}

# reached: wait until the ingress reaches every service. It learns about new pods a little later than Helm.
reached() {
	local path
	for path in account events links videos; do
		[ "$(status "$base/api/v1/$path")" = 401 ] || return
	done
	[ "$(status "$short/no-such-slug-here")" = 404 ] && [ "$(status "$base/v/no-such-slug-here")" = 404 ] && [ "$(status "$base/app/sign-in")" = 200 ]
}
status() { curl -s -o /dev/null -w '%{http_code}' --max-time 2 --connect-to "::127.0.0.1:$http_port" "$1"; }

## images: import Linkreel's images, which `make cluster-test` has just built, into the node.
case_images() {
	local archive sum
	for archive in "$images"/*.tar; do
		[[ $archive != *.layer.tar ]] || continue
		sum=$(sha256sum <"$archive")   # The same commit gives the same bytes.
		[ "$sum" != "$(cat "$work/$(basename "$archive").sum" 2>/dev/null)" ] || continue
		import_archive "$archive"
		echo "$sum" >"$work/$(basename "$archive").sum"
	done
	ok "the node has the images"
}

## dryrun: the API server accepts the objects of every ci/*.yaml, and no pod breaks the restricted standard.
case_dryrun() {
	local file output
	kubectl apply --server-side -f "$state/crds-optional" >/dev/null
	kubectl apply --server-side --force-conflicts -f "$here/crds-open.yaml" >/dev/null
	kubectl delete namespace dry --ignore-not-found --timeout 60s >/dev/null
	kubectl create namespace dry >/dev/null
	kubectl label namespace dry --overwrite pod-security.kubernetes.io/{enforce,warn}=restricted >/dev/null
	for file in "$chart"/ci/*.yaml; do
		output=$(helm template try "$chart" --namespace dry --values "$file" | kubectl apply --namespace dry --dry-run=server -f - 2>&1) ||
			{ echo "$output"; die "the API server rejected $file"; }
		[[ $output != *Warning* ]] || { echo "$output"; die "$file draws a warning"; }
		ok "$(basename "$file"): $(wc -l <<<"$output") objects"
	done
	kubectl delete namespace dry --wait=false >/dev/null
}

## score: kube-score reports nothing critical about the objects of any ci/*.yaml, except the checks that this case excuses.
case_score() {
	local file name found unguarded excused=(
		# A CPU limit would keep pods from using idle CPU. Requests divide scarce CPU fairly.
		--ignore-container-cpu-limit
		# A release names its images by digest. Always would only make every start depend on the registry.
		--ignore-test container-image-pull-policy
		# Roots are read-only and each emptyDir has a sizeLimit, which the kubelet enforces; the worker, which needs much
		# scratch space, also requests it.
		--ignore-test container-ephemeral-storage-request-and-limit
		# Redis and localcloud are one pod each, called by the name of their Service.
		--ignore-test statefulset-has-servicename
	)
	for file in "$chart"/ci/*.yaml; do
		name=$(basename "$file")
		found=$({ helm template try "$chart" --values "$file" && { [ "$name" != devstack.yaml ] || helm template devstack "$root/charts/devstack"; }; } |
			kube-score score --output-format ci "${excused[@]}" - || true)
		[[ $found = *"[OK]"* ]] || die "$name is not rendered"
		# The pods of hooks listen on nothing, and skaffold's have no policies.
		unguarded='linkreel-\(test\|preflight\|restore\)'
		[ "$name" != devstack.yaml ] || unguarded=
		found=$(grep '\[CRITICAL\]' <<<"$found" | grep -v "$unguarded/.*NetworkPolicy" || true)
		# OpenShift chooses users and groups itself, and rejects pods that name one.
		[ "$name" != openshift.yaml ] || found=$(grep -v 'a low \(user\|group\) ID' <<<"$found" || true)
		[ -z "$found" ] || { echo "$found"; die "$name has critical findings"; }
	done
	ok "kube-score: nothing critical"
}

## install: helm install --wait from nothing; all pods are ready in a namespace that enforces the restricted standard.
case_install() { installed; }

# emptied: delete all objects in the namespace.
emptied() {
	rm -f "$work"/{fresh,traffic.json}
	h uninstall $release --wait >/dev/null 2>&1 || true
	kubectl delete namespace $namespace --ignore-not-found --timeout 120s >/dev/null
	kubectl create namespace $namespace >/dev/null
	kubectl label namespace $namespace pod-security.kubernetes.io/{enforce,warn}=restricted >/dev/null
}

# installed VALUE...: install a release from nothing, with these values on top.
installed() {
	local start=$SECONDS ours
	mapfile -t ours < <(ours)
	emptied
	h install $release "$chart" "${ours[@]}" "$@" --wait --timeout 300s >/dev/null || troubles "helm install failed"
	touch "$work/fresh"
	ok "helm install --wait: $(k get pods --no-headers | wc -l) pods ready after $((SECONDS - start)) s"
}

## helmtest: helm test passes inside the cluster.
case_helmtest() {
	h test $release --timeout 240s >/dev/null || { k logs $release-test; die "helm test failed"; }
	ok "helm test: $(k logs $release-test | grep -c '^ok ') checks by the Services' names"
}

## smoke: API, redirect, upload to ready and playback through the Ingress by host name.
case_smoke() {
	smoke Ingress
	fails curl -fsS -o /dev/null --resolve "other.localhost:$http_port:127.0.0.1" "http://other.localhost:$http_port/"
	ok "the Ingress refuses an unknown host"
}

# smoke WAY: run the smoke test through the Ingress or the Gateway.
smoke() {
	local output
	await 60 reached
	output=$(check smoke) || { echo "$output"; die "smoke through the $1 failed"; }
	ok "smoke through the $1: $(grep -c '^ok ' <<<"$output") checks,$(grep 'upload to ready' <<<"$output")"
}

## stories: the end-to-end stories and the contract tests, through the Ingress by host name.
case_stories() {
	# They create names that can be created only once, so they need a fresh release.
	[ -f "$work/fresh" ] || case_install
	stories Ingress
}

# stories WAY: run the stories on a fresh release, through the Ingress or the Gateway.
stories() {
	local proxy
	rm "$work/fresh"
	await 60 reached
	# Receivers of webhooks listen on this machine's loopback; their messages come through this
	# proxy.
	forward "$host_ip:$proxy_port=CONNECT" 2>"$work/proxy.txt" &
	proxy=$!
	background+=("$proxy")
	check stack --upload "http://media.linkreel.localhost:$http_port" >"$work/stack.json"
	sed 's/^127\.0\.0\.1.*/& linkreel.localhost go.linkreel.localhost media.linkreel.localhost/' /etc/hosts >"$work/hosts"
	# Use a separate hosts file for these processes only.
	(cd "$root" && LINKREEL_STACK=$work/stack.json unshare --mount bash -euo pipefail -c '
		mount --bind "$0" /etc/hosts
		exec go test -count=1 -timeout 15m ./tests/e2e/... ./tests/contract/...' "$work/hosts") >"$work/stories.txt" 2>&1 ||
		{ tail -n 60 "$work/stories.txt"; die "stories failed"; }
	kill "$proxy"
	ok "stories through the $1: $(tr '\n' ' ' <"$work/stories.txt")"
}

## pods: containers have no capabilities, a seccomp profile, a read-only root and no token. Go stays within nine tenths of its memory.
case_pods() {
	local pod name limit
	pod=$(pod_of worker)
	k exec "$pod" -- bash -c '
		grep -q "^CapEff:.0000000000000000$" /proc/self/status && grep -q "^Seccomp:.2$" /proc/self/status &&
		! touch /x 2>/dev/null && touch /tmp/x && [ ! -e /var/run/secrets/kubernetes.io ] && [ "$(id -u)" = 65532 ]' ||
		die "the worker's container has too many rights"
	ok "no capabilities, seccomp filter, read-only root, no API token"
	for name in "${services[@]}"; do
		pod=$(pod_of $name)
		limit=$(k get "pod/$pod" -o jsonpath='{.spec.containers[0].resources.limits.memory}' | numfmt --from=iec-i)
		k get --raw "/api/v1/namespaces/$namespace/pods/$pod:9090/proxy/metrics" |
			awk -v limit="$limit" '$1 == "go_gc_gomemlimit_bytes" {found = ($2 - limit * 0.9) ^ 2 <= 1} END {exit !found}' ||
			die "Go's memory limit in $name does not follow the container's limit of $limit bytes"
	done
	ok "Go's memory limit in each service follows its container's limit"
}

# may: print the lines of a table of the allowed connections: from which pod to which port of which pod. All other
# connections are closed.
may() {
	cat <<-'END'
		console  auth:8080 auth:8090 events:8080 links:8080 videos:8080
		events   auth:8090 redis:6379 localcloud:8085
		links    auth:8090 redis:6379 localcloud:8085
		videos   auth:8090 redis:6379 localcloud:8083 localcloud:8085 localcloud:8086
		worker   redis:6379 localcloud:8083 localcloud:8085 localcloud:8086
		auth     events:8090 links:8090 videos:8090 redis:6379 localcloud:8085
		redis
		localcloud videos:8080
		test     auth:8080 auth:8082 console:8080 events:8080 links:8080 links:8081 videos:8080 localcloud:8083 auth:9090 console:9090 events:9090 links:9090 videos:9090 worker:9090 world
		stranger auth:9090 console:9090 events:9090 links:9090 videos:9090 worker:9090 world
	END
}
ports() { printf '%s\n' auth:{8080,8082,8090,9090} console:{8080,9090} events:{8080,8090,9090} links:{8080,8081,8090,9090} videos:{8080,8090,9090} worker:9090 redis:6379 localcloud:{8083,8085,8086} world; }

## policy: every pod of the release, and a pod outside it, tries every port of every pod and an address on the internet. Exactly the connections that the table allows succeed.
case_policy() {
	local caller target addresses=() name allowed tried=0 open=0 got wanted labels
	declare -A name_of
	k delete pod -l probe=caller --ignore-not-found --now >/dev/null
	for target in $(ports); do
		# The API server answers every pod, so an address that cannot be reached is blocked by a policy.
		name=$node_ip:6443
		[ "$target" = world ] || name=$(k get "pod/$(pod_of "${target%:*}")" -o jsonpath='{.status.podIP}'):${target#*:}
		addresses+=("$name")
		name_of[$name]=$target
	done
	while read -r caller _; do
		labels="probe=caller,app.kubernetes.io/name=linkreel,app.kubernetes.io/instance=$release,app.kubernetes.io/component=$caller"
		[ "$caller" != stranger ] || labels=probe=caller
		k run "caller-$caller" --restart Never --image localhost/linkreel/check:dev --labels "$labels" --overrides "$(jq -cn '{spec: {
			securityContext: {runAsNonRoot: true, seccompProfile: {type: "RuntimeDefault"}}, automountServiceAccountToken: false,
			containers: [{name: "probe", image: "localhost/linkreel/check:dev", imagePullPolicy: "Never", args: (["reach", "--after=20s"] + $ARGS.positional),
				securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: ["ALL"]}}}]}}' --args -- "${addresses[@]}")" >/dev/null
	done < <(may)
	while read -r caller allowed; do
		k wait --for jsonpath='{.status.phase}'=Failed "pod/caller-$caller" --timeout 120s >/dev/null
		got=$(k logs "caller-$caller" | sed -n 's/^ok *reached //p' | while read -r name; do echo "${name_of[$name]}"; done | sort | xargs)
		wanted=$(tr ' ' '\n' <<<"$allowed" | sort | xargs)
		[ "$got" = "$wanted" ] || die "$caller can connect to: $got; want: $wanted"
		tried=$((tried + ${#addresses[@]})) open=$((open + $(wc -w <<<"$allowed")))
	done < <(may)
	k delete pod -l probe=caller --now >/dev/null
	ok "$(may | wc -l) kinds of callers tried ${#addresses[@]} ports each: $open of $tried are open, as in the table, and the others are closed"
}

traffic() {
	await 60 reached
	[ -s "$work/traffic.json" ] || check setup >"$work/traffic.json"
}

## rollouts: rolling restarts of each HTTP service under requests on kept connections; no request fails.
case_rollouts() {
	local service kinds
	traffic
	for service in auth console events links videos; do
		kinds=$service
		[ $service != links ] || kinds="redirect links"
		for kind in $kinds; do
			under "$kind" "$rollouts restarts of $service" restarts $service
		done
	done
}

## people: people work in the console while its pods are restarted and killed. Nobody is signed out, and every accepted form takes effect.
case_people() {
	await 60 settled   # A port forwarded to a stopping pod hangs.
	keeping people restarts console
	ok "console rolled $rollouts times: $(grep '^ok ' "$work/people.txt" | cut -c6-)"
	keeping people kill_pods console 5
	ok "console killed 5 times: $(grep '^ok ' "$work/people.txt" | cut -c6-)"
	keeping people kill_pods auth 3
	ok "auth killed 3 times: $(grep '^ok ' "$work/people.txt" | cut -c6-)"
}
# kill_pods COMPONENT TIMES: kill one pod after another.
kill_pods() {
	local i
	for ((i = 0; i < $2; i++)); do
		k delete pod "$(pod_of "$1")" --grace-period=0 --force
		k rollout status deployment/$release-"$1" --timeout 120s
		sleep 2
	done
}

## upgrade: helm upgrade to another build of this source, helm rollback and helm upgrade once more, under mixed load and concurrent writes; no request fails. Search finds every link from before and during the upgrades, and each has one event.
case_upgrade() {
	local writer name
	# Redis and localcloud have no second pod, so they keep their images.
	local next=(--set "image.tag=next,localcloud.image=localhost/linkreel/localcloud:dev")
	(cd "$root" && OUT=$work/next LAYERS=$layers TAG=next images/build.sh "${services[@]/%worker/transcoding-worker}" >/dev/null)
	for name in "${services[@]/%worker/transcoding-worker}"; do import_archive "$work/next/$name.tar"; done
	traffic
	await 60 settled
	operator
	checking writes --before "${LINKS:-10000}" >"$work/writes.txt" 2>&1 &
	writer=$!
	background+=("$writer")
	await 300 grep -q begun "$work/writes.txt"
	under mixed "helm upgrade" upgrade "${next[@]}"
	await 60 all_run next
	under mixed "helm rollback" h rollback $release "$(h history $release -o json | jq '.[-2].revision')" --wait --timeout 300s
	await 60 all_run dev
	under mixed "helm upgrade once more" upgrade "${next[@]}"
	await 60 all_run next
	kill -TERM $writer
	wait $writer || { cat "$work/writes.txt"; die "writes under the upgrades failed"; }
	ok "during all three: $(grep '^ok ' "$work/writes.txt" | cut -c6- | paste -sd ';')"
	check smoke >"$work/smoke.txt" 2>&1 || { cat "$work/smoke.txt"; die "smoke after the upgrades failed"; }
	ok "smoke passes after upgrade, rollback and upgrade"
	upgrade
}
# all_run VERSION: every pod of our programs reports this version.
all_run() {
	local pod pods
	settled || return
	pods=$(k get pods -l "app.kubernetes.io/component in ($(IFS=,; echo "${services[*]}"))" -o name)
	[ "$(wc -l <<<"$pods")" -ge ${#services[@]} ] || return
	for pod in $pods; do
		[ "$(k get --raw "/api/v1/namespaces/$namespace/pods/${pod#pod/}:9090/proxy/version" | jq -r .version)" = "$1" ] || return
	done
}

## kill: workers are killed in the middle of jobs, and every video becomes ready. Redis and localcloud are killed; redirects keep working, and every acknowledged write still exists.
case_kill() {
	local pid killed=()
	traffic
	film
	await 60 settled
	operator   # The pod behind the forwarded port may have died since.
	checking videos --count 4 --renditions 3 --file "$work/film.mp4" >"$work/videos.txt" 2>&1 &
	pid=$!
	background+=("$pid")
	for _ in 1 2 3; do
		await 120 working
		killed+=("$(tail -n 1 "$work/videos.txt" | tr -s ' ')")
		k delete pod -l app.kubernetes.io/component=worker --grace-period=0 --force >/dev/null 2>&1
		k rollout status deployment/$release-worker --timeout 60s >/dev/null
		sleep 1   # Wait, so that `working` does not match the state from before the kill.
	done
	wait $pid || { cat "$work/videos.txt"; die "videos were lost"; }
	ok "all worker pods killed when${killed[0]},${killed[1]},${killed[2]}: $(grep '^ok ' "$work/videos.txt" | cut -c6-)"
	for component in redis localcloud; do
		keeping ledger kill_one $component
		ok "$component killed: $(grep '^ok ' "$work/ledger.txt" | cut -c6-)"
		under redirect "$component killed" kill_one $component
	done
	check smoke >"$work/smoke.txt" 2>&1 || { cat "$work/smoke.txt"; die "smoke after the kills failed"; }
	ok "smoke passes after the kills"
}
working() { tail -n 1 "$work/videos.txt" | grep -q ' [1-9][0-9]* begun'; }
film() {
	[ -s "$work/film.mp4" ] || ffmpeg -nostdin -v error -y -f lavfi -i testsrc2=size=1280x720:rate=30:duration=20 \
		-f lavfi -i sine=frequency=440:duration=20 -c:v libx264 -preset ultrafast -pix_fmt yuv420p -c:a aac -shortest "$work/film.mp4"
}
kill_one() {
	k delete pod $release-"$1"-0 --grace-period=0 --force
	sleep 1
	k rollout status statefulset/$release-"$1" --timeout 120s
}

# freeze STATE: FROZEN stops every container of the release, THAWED resumes it.
freeze() {
	local uid group
	for uid in $(k get pods -l app.kubernetes.io/instance=$release -o jsonpath='{.items[*].metadata.uid}'); do
		for group in /sys/fs/cgroup/freezer/"$cgroup"/kubepods/{,burstable/,besteffort/}pod"$uid"; do
			[ ! -d "$group" ] || echo "$1" >"$group/freezer.state"
		done
	done
}

## freeze: every container of the release is stopped for 30 s. Every write acknowledged before, during and after that exists, and the release recovers without help.
case_freeze() {
	keeping ledger freeze_all
	check smoke >"$work/smoke.txt" 2>&1 || { cat "$work/smoke.txt"; die "smoke after the freeze failed"; }
	ok "all containers stopped for 30 s, first response $(<"$work/first.txt") s later; $(grep '^ok ' "$work/ledger.txt" | cut -c6-); smoke passes"
}
freeze_all() {
	local start
	freeze FROZEN
	sleep 30
	freeze THAWED
	start=$SECONDS
	await 60 curl -fsS -o /dev/null --max-time 5 --resolve "linkreel.localhost:$http_port:127.0.0.1" "$base/openapi.json"
	echo $((SECONDS - start)) >"$work/first.txt"
	await 90 settled
}

## hpa: the HorizontalPodAutoscaler adds pods under load.
case_hpa() {
	traffic
	upgrade --set links.autoscaling.targetCPUPercent=20
	under redirect "HorizontalPodAutoscaler" await 180 scaled
	ok "links has $(k get deployment $release-links -o jsonpath='{.spec.replicas}') pods under load"
	upgrade
}
scaled() { [ "$(k get deployment $release-links -o jsonpath='{.spec.replicas}')" -gt 2 ]; }

## gateway: smoke and stories on a release with Gateway API instead of the Ingress.
case_gateway() {
	installed --set 'ingress.enabled=false,httpRoute.enabled=true,httpRoute.parentRefs[0].name=linkreel'
	[ -z "$(k get ingress -o name)" ] || die "the release still has an Ingress"
	kubectl apply -f - >/dev/null <<-END
		apiVersion: gateway.networking.k8s.io/v1
		kind: GatewayClass
		metadata: {name: traefik}
		spec: {controllerName: traefik.io/gateway-controller}
		---
		apiVersion: gateway.networking.k8s.io/v1
		kind: Gateway
		metadata: {name: linkreel, namespace: $namespace}
		spec:
		  gatewayClassName: traefik
		  listeners: [{name: web, protocol: HTTP, port: 8000}]
	END
	for host in linkreel go.linkreel media.linkreel; do await 30 routed $host.localhost; done
	smoke Gateway
	stories Gateway
	upgrade
}

# routed HOST: the ingress routes HOST to a service. The compared text is the ingress's own 404.
routed() { [ "$(curl -s --resolve "$1:$http_port:127.0.0.1" "http://$1:$http_port/no-such-slug")" != "404 page not found" ]; }

## traces: a create and a cold redirect are one trace each, across services; a transcode is a trace that links to the call that created the video.
case_traces() {
	local viewer name made
	h upgrade --install devstack "$root/charts/devstack" --set images.redis=localhost/linkreel/redis:dev --wait --timeout 120s >/dev/null
	upgrade --set telemetry.endpoint=http://devstack-otelview:4318 \
		--set 'networkPolicy.telemetryTo[0].podSelector.matchLabels.app=devstack-otelview'
	await 60 settled   # The previous pods, which send no spans, still serve requests while they stop.
	viewer=http://$(k get service devstack-otelview -o jsonpath='{.spec.clusterIP}'):4318
	await 60 reached
	check videos --count 1 >/dev/null
	for _ in 1 2 3 4 5; do
		cold_visit || continue
		! within 20 spans_of 'GET /:slug' 'links: GET /:slug' 'links: .*firestore.GetAll' || break
	done
	holds 'POST /api/v1/links' 'links: POST /api/v1/links' 'auth: verify key' 'Firestore|firestore'
	holds 'GET /:slug' 'links: GET /:slug' 'links: .*firestore.GetAll'
	holds 'transcoding-worker transcode' 'transcode  -> ' 'download' 'publish'
	made=$(sed -n 's/.* -> \([0-9a-f]*\)$/\1/p' "$work/trace.txt" | head -n 1)
	await 30 comes_from_videos "$made"
	ok "the transcode's trace links to $(curl -sS "$viewer/traces/$made" | head -n 1 | tr -s ' ')"
	h uninstall devstack --wait >/dev/null
	upgrade
}
# cold_visit: request a link that no replica has read before.
cold_visit() {
	check setup >"$work/traced.json"
	[ "$(status "$(jq -r .shortUrl "$work/traced.json")")" = 302 ]
}
comes_from_videos() { [[ "$(curl -sS "$viewer/traces/$1")" = *"videos: "* ]]; }
# holds NAME TEXT...: wait until a trace called NAME has spans with these TEXTs, because each process sends its spans
# with a delay. Then print the trace.
holds() {
	local name=$1
	shift
	await 60 spans_of "$name" "$@"
	ok "$name is one trace:"
	sed 's/^/       /' "$work/trace.txt"
}
spans_of() {
	local id text
	for id in $(curl -sS --get --data-urlencode "name=$1" "$viewer/traces" | cut -d' ' -f1); do
		curl -sS --fail "$viewer/traces/$id" >"$work/trace.txt" || continue
		for text in "${@:2}"; do grep -qE -e "$text" "$work/trace.txt" || continue 2; done
		return
	done
	return 1
}

## keda: with no worker, the scaler's own query (as the ScaledObject has it) counts an upload, and a job that lost its worker. Scaling by that query makes every video ready.
case_keda() {
	local pid address stream before
	kubectl apply --server-side -f "$state/crds-optional" >/dev/null
	before=$(worker_count)
	upgrade --set worker.keda.enabled=true,worker.keda.minReplicas=0
	[ "$(worker_count)" = "$before" ] || die "turning KEDA on changed $before workers to $(worker_count)"
	address=$(k get scaledobject $release-worker -o jsonpath='{.spec.triggers[0].metadata.address}')
	stream=$(k get scaledobject $release-worker -o jsonpath='{.spec.triggers[0].metadata.stream}')
	workers 0
	film
	operator
	checking videos --count 1 --renditions 3 --file "$work/film.mp4" >"$work/videos.txt" 2>&1 &
	pid=$!
	background+=("$pid")
	await 60 due
	ok "no worker runs, and the scaler's query of $stream at $address counts $(jobs_due)"
	workers 1
	await 120 working
	workers 0
	await 90 due
	ok "the worker was killed while it worked, and the query counts $(jobs_due)"
	workers 1
	wait $pid || { cat "$work/videos.txt"; die "the video was lost"; }
	ok "$(grep '^ok ' "$work/videos.txt" | cut -c6-)"
	await 60 nothing_due
	# This case has set the number of replicas with kubectl, so delete the Deployment and let Helm create it again.
	k delete deployment/$release-worker --wait >/dev/null
	upgrade
}
worker_count() { k get deployment/$release-worker -o jsonpath='{.spec.replicas}'; }
workers() {
	k scale deployment/$release-worker --replicas "$1" >/dev/null
	if [ "$1" = 0 ]; then k delete pod -l app.kubernetes.io/component=worker --grace-period=0 --force >/dev/null 2>&1; fi
	k rollout status deployment/$release-worker --timeout 90s >/dev/null
}
# The trigger redis-streams with streamLength makes this query, with the password of its TriggerAuthentication.
jobs_due() { k exec $release-redis-0 -- redis-cli --no-auth-warning XLEN "$stream"; }
due() { [ "$(jobs_due)" -ge 1 ]; }
nothing_due() { [ "$(jobs_due)" = 0 ]; }

## certificates: 50 verified custom domains get certificates from a real ACME server (pebble) at their first request, and other hosts get none. The case also covers a failing authority, a killed pod and renewal.
case_certificates() {
	local edge
	installed
	[ -s "$work/acme.crt" ] || openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=authority -days 3650 \
		-addext "subjectAltName=IP:$host_ip" -keyout "$work/acme.key" -out "$work/acme.crt" 2>/dev/null
	k create configmap acme-ca --from-file=ca.pem="$work/acme.crt" --dry-run=client -o yaml | k apply -f - >/dev/null
	upgrade --set "tls.onDemand.enabled=true,tls.onDemand.service.type=ClusterIP,tls.onDemand.directory=https://$host_ip:14000/dir,tls.onDemand.ordersPerHour=1000" \
		--set "tls.onDemand.caFile=/etc/acme/ca.pem,dnsResolver=$host_ip:53,links.env.LINKREEL_CERTIFICATE_SWEEP=5s" \
		--set-json "networkPolicy.acmeTo=[{\"ipBlock\":{\"cidr\":\"$host_ip/32\"}}]" \
		--set-json 'links.extraVolumes=[{"name":"acme","configMap":{"name":"acme-ca"}}]' \
		--set-json 'links.extraVolumeMounts=[{"name":"acme","mountPath":"/etc/acme","readOnly":true}]'
	await 60 settled
	operator
	edge=$(k get service $release-links-tls -o jsonpath='{.spec.clusterIP}')
	LINKREEL_ADMIN_TOKEN=$(token) authority --listen "$host_ip:14000" --cert "$work/acme.crt" --key "$work/acme.key" --dns "$host_ip:53" \
		--edge "$edge" --pods "$(k get pods -l app.kubernetes.io/component=links -o jsonpath='{.items[*].status.podIP}' | tr ' ' ,)" \
		--base "$base" --ingress "127.0.0.1:$http_port" --operator "$(operator_url)" --domains "${DOMAINS:-50}" \
		--kill "kubectl --namespace $namespace delete pod $(pod_of links) --grace-period=0 --force"
	upgrade
}

## redis: the chart with a Redis Cluster of three servers, over TLS with a private authority, and with password and address in a Secret.
case_redis() {
	local ours
	kubectl delete namespace databases --ignore-not-found --timeout 120s >/dev/null
	kubectl create namespace databases >/dev/null
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=redis-ca -days 30 -keyout "$work/redis-ca.key" -out "$work/redis-ca.crt" 2>/dev/null
	openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=redis -keyout "$work/redis.key" -out "$work/redis.csr" 2>/dev/null
	openssl x509 -req -in "$work/redis.csr" -CA "$work/redis-ca.crt" -CAkey "$work/redis-ca.key" -CAcreateserial -days 30 -out "$work/redis.crt" 2>/dev/null \
		-extfile <(echo "subjectAltName=DNS:*.redis.databases.svc")
	kubectl -n databases create secret generic redis --from-file=ca.crt="$work/redis-ca.crt" --from-file=tls.crt="$work/redis.crt" --from-file=tls.key="$work/redis.key" --from-literal=password=six-seven-eight >/dev/null
	kubectl -n databases apply -f "$here/redis-cluster.yaml" >/dev/null
	kubectl -n databases rollout status statefulset/redis --timeout 120s >/dev/null
	# shellcheck disable=SC2046
	redis_cli 0 --cluster create $(kubectl -n databases get pods -l app=redis -o jsonpath='{range .items[*]}{.status.podIP}:6379 {end}') --cluster-yes >"$work/redis.txt" || { cat "$work/redis.txt"; die "no Redis Cluster"; }
	await 30 redis_whole
	emptied
	k create configmap redis-ca --from-file=ca.crt="$work/redis-ca.crt" >/dev/null
	k create secret generic redis-address --from-literal=url="rediss://:six-seven-eight@redis-0.redis.databases.svc:6379,redis-1.redis.databases.svc:6379,redis-2.redis.databases.svc:6379" >/dev/null
	mapfile -t ours < <(ours)
	h install $release "$chart" "${ours[@]}" --wait --timeout 300s >/dev/null \
		--set redis.enabled=false,redis.external.existingSecret=redis-address,redis.external.caFile=/etc/redis-ca/ca.crt \
		--set-json 'networkPolicy.redisTo=[{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"databases"}}}]' \
		--set-json 'defaults.extraVolumes=[{"name":"redis-ca","configMap":{"name":"redis-ca"}}]' \
		--set-json 'defaults.extraVolumeMounts=[{"name":"redis-ca","mountPath":"/etc/redis-ca","readOnly":true}]' || troubles "helm install with a Redis Cluster failed"
	await 60 reached
	check smoke >"$work/smoke.txt" 2>&1 || { cat "$work/smoke.txt"; die "smoke with a Redis Cluster failed"; }
	keeping ledger sleep 5
	[ "$(($(redis_cli 0 DBSIZE) + $(redis_cli 1 DBSIZE) + $(redis_cli 2 DBSIZE)))" -gt 0 ] || die "the Redis Cluster is empty"
	ok "Redis Cluster over TLS: smoke passes; $(grep '^ok ' "$work/ledger.txt" | cut -c6-); keys of the servers: $(redis_cli 0 DBSIZE) $(redis_cli 1 DBSIZE) $(redis_cli 2 DBSIZE)"
	kubectl delete namespace databases --wait=false >/dev/null
	installed
}
redis_cli() {
	local server=$1
	shift
	kubectl -n databases exec "redis-$server" -- sh -c 'REDISCLI_AUTH=$(cat /etc/redis/password) exec redis-cli --no-auth-warning --tls --cacert /etc/redis/ca.crt "$@"' sh "$@"
}
redis_whole() { [[ "$(redis_cli 0 CLUSTER INFO)" = *cluster_state:ok* ]]; }

## preflight: if Google Cloud is not set up, helm install stops before any pod starts, and the Job's log states the reason.
case_preflight() {
	local line
	emptied
	k create secret generic linkreel-redis --from-literal=url=redis://nowhere:6379/0 >/dev/null
	k create secret generic linkreel --from-literal=admin-token=none >/dev/null
	fails h install $release "$chart" --values "$chart/ci/google.yaml" --set gke.enabled=false,metrics.podMonitoring.enabled=false,metrics.rules.enabled=false \
		--set image.registry=localhost/linkreel,image.tag=dev,image.pullPolicy=Never --wait --timeout 120s
	[ -z "$(k get deployment -o name)" ] || die "pods were created although the preflight failed"
	line=$(k logs job/$release-preflight | tail -n 1)
	[[ $line = *credentials* ]] || die "the preflight's last line is: $line"
	ok "helm install stopped before any pod; its log line: $line"
	h uninstall $release >/dev/null 2>&1 || true
	installed
}

## release: make release pushes to a registry on this machine, but pushes nothing for a hostile version or a commit outside the branch. The chart is installed from there, pods pull by digest, helm test passes, and the arm64 worker's ffmpeg runs. TWICE=1 builds a second time from another clone with an empty Go cache and compares.
case_release() {
	local registry=$host_ip:$registry_port/linkreel version=0.0.0-test commit image ours
	commit=$(git -C "$root" rev-parse HEAD)
	mkdir -p "$state/release"
	# A version is never replaced, so another commit needs an empty registry.
	[ "$(cat "$state/release/commit" 2>/dev/null)" = "$commit" ] || rm -rf "$state/release/registry"
	cat >"$work/registry.yaml" <<-END
		version: 0.1
		log: {level: error, accesslog: {disabled: true}}
		storage: {filesystem: {rootdirectory: $state/release/registry}, delete: {enabled: true}}
		http: {addr: "$host_ip:$registry_port"}
	END
	registry serve "$work/registry.yaml" >"$work/registry.txt" 2>&1 &
	background+=("$!")
	await 20 curl -fsS "http://$host_ip:$registry_port/v2/"
	if [ "$(cat "$state/release/commit" 2>/dev/null)" != "$commit" ]; then
		refused
		released first
		echo "$commit" >"$state/release/commit"
	fi
	if [ "${TWICE-}" = 1 ]; then
		GOCACHE=$work/gocache released second
		rm -rf "$work/gocache"
		diff -r "$state/release/first/dist/release" "$state/release/second/dist/release" >"$work/diff.txt" || { head "$work/diff.txt"; die "two builds differ"; }
		ok "two builds of the commit, the second from another clone with an empty Go cache: the same $(jq '.subject | length' "$state/release/first/dist/release/provenance.intoto.json") digests"
		rm -rf "$state/release/second"
	fi
	mapfile -t ours < <(ours)
	emptied
	h install $release "oci://$registry/charts/linkreel" --version $version --plain-http "${ours[@]}" --wait --timeout 300s >/dev/null \
		--set "image.registry=$registry,image.tag=,image.pullPolicy=IfNotPresent" || troubles "helm install from the registry failed"
	for image in $(k get pods -o jsonpath='{.items[*].spec.containers[*].image}'); do
		[[ $image = "$registry"/*:$version@sha256:* || $image = localhost/linkreel/redis:dev ]] || die "a pod runs $image without a digest"
	done
	ok "helm install oci://$registry/charts/linkreel: $(k get pods --no-headers | wc -l) pods, images of the registry by digest"
	case_helmtest
	smoke Ingress
	if command -v qemu-aarch64-static >/dev/null; then
		ok "the arm64 worker under qemu-user: $(arm64_worker | sed -n 1p)"
	else
		echo "     no qemu-aarch64-static (qemu-user-static): the arm64 worker is not tested"
	fi
	installed
}
# released NAME: make a release from a fresh clone, in $state/release/NAME.
released() {
	local source=$state/release/$1 start=$SECONDS
	rm -rf "$source"
	git clone --quiet --no-local "$root" "$source"
	git -C "$source" checkout --quiet "$commit"
	VERSION=$version REGISTRY=$registry RELEASE_FLAGS=-insecure make -C "$source" release >"$work/release.txt" 2>&1 || { tail "$work/release.txt"; die "make release failed"; }
	(cd "$source/dist/release" && sha256sum --quiet --check SHA256SUMS) || die "checksums do not match"
	ok "make release, $1: $(find "$source/dist/release" -type f | wc -l) files, $(du -sh "$source/dist/release" | cut -f1), after $((SECONDS - start)) s; checksums match"
}
# refused: try versions and commits for which make release must push nothing.
refused() {
	local source=$state/release/refused hostile
	rm -rf "$source"
	git clone --quiet --no-local "$root" "$source"
	git -C "$source" checkout --quiet "$commit"
	export REGISTRY=$registry RELEASE_FLAGS=-insecure
	for hostile in '0.0.0-`touch owned`' '0.0.0-$(touch owned)' '0.0.0-$(shell touch owned)' '0.0.0;touch owned' "0.0.0-'\";touch owned;'\"" $'0.0.0\ntouch owned' --help ''; do
		VERSION=$hostile fails make -C "$source" release
	done
	[ -z "$(find "$source" -name owned)" ] || die "a version ran a command"
	git -C "$source" -c user.name=A -c user.email=a@example.com commit --quiet --allow-empty -m "not on the branch"
	VERSION=$version RELEASE_BRANCH=$commit fails make -C "$source" release
	[ -z "$(find "$state/release/registry" -type f 2>/dev/null)" ] || die "the registry has content"
	unset REGISTRY RELEASE_FLAGS
	rm -rf "$source"
	ok "hostile versions, and a commit outside the branch: nothing was run, nothing was pushed"
}
# arm64_worker: print the version of ffmpeg in the arm64 image.
arm64_worker() {
	local api=http://$host_ip:$registry_port/v2/linkreel/transcoding-worker folder=$work/arm64 manifest blob setting
	rm -rf "$folder"
	mkdir "$folder"
	manifest=$(curl -fsS -H 'Accept: application/vnd.oci.image.index.v1+json' "$api/manifests/$version" | jq -r '.manifests[] | select(.platform.architecture == "arm64").digest')
	manifest=$(curl -fsS -H 'Accept: application/vnd.oci.image.manifest.v1+json' "$api/manifests/$manifest")
	for blob in $(jq -r '.layers[].digest' <<<"$manifest"); do curl -fsSL "$api/blobs/$blob" | tar -xz -C "$folder"; done
	setting=$(curl -fsSL "$api/blobs/$(jq -r .config.digest <<<"$manifest")" | jq -r '.config.Env[] | select(startswith("LD_LIBRARY_PATH="))')
	cp "$(command -v qemu-aarch64-static)" "$folder/qemu"
	chroot "$folder" /qemu -E "$setting" /usr/bin/ffmpeg -version
	rm -rf "$folder"
}

## backup: the CronJob copies a release while links are made, encrypted, and the copy is checked. The volumes of localcloud's records, its objects and Redis are lost, and the steps of docs/recovery.md bring back everything that was acknowledged before the backup began; a key that was revoked since stays revoked. A restore over other data is refused, and no pod but the job reaches the port of backups.
case_backup() {
	local before later line pod recipient volume
	ensure age-keygen=age
	installed --set localcloud.objects.size=10Gi
	# All pods are on one node, so ReadWriteOnce is enough for the trail.
	k apply -f - >/dev/null <<-END
		apiVersion: v1
		kind: PersistentVolumeClaim
		metadata: {name: audit}
		spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
	END
	cat >"$work/backup.yaml" <<-END
		backup: {enabled: true, volume: {size: 10Gi}}
		auth:
		  env: {LINKREEL_AUDIT_DIR: /audit}
		  extraVolumes: [{name: audit, persistentVolumeClaim: {claimName: audit}}]
		  extraVolumeMounts: [{name: audit, mountPath: /audit}]
		restore: {auditClaim: audit}
		localcloud: {objects: {size: 10Gi}}
	END
	upgrade --values "$work/backup.yaml" --set 'backup.schedule=* * * * *'
	await 120 scheduled
	ok "the schedule made a backup: $(k get cronjob/$release-backup -o jsonpath='{.status.lastSuccessfulTime}')"
	# From here on, backups are encrypted. The earlier ones are not.
	rm -f "$work/identity.txt"
	age-keygen -o "$work/identity.txt" 2>/dev/null
	recipient=$(age-keygen -y "$work/identity.txt")
	echo "backup: {encryptTo: $recipient}" >"$work/encrypted.yaml"
	upgrade --values "$work/backup.yaml" --values "$work/encrypted.yaml"
	await 60 idle
	await 60 reached
	check fill --count "${LINKS:-10000}" --videos 5
	keeping keep backup_now
	before=$(<"$work/before.txt")
	grep '^{' "$work/keep.txt" >"$work/kept.json"
	ok "the job took $(<"$work/took.txt") s while links were made, and none failed: $(k logs job/backup-now | head -n 1)"
	volume=$(kubectl get "pv/$(k get pvc/$release-backup -o jsonpath='{.spec.volumeName}')" -o jsonpath='{.spec.local.path}')
	line=$(k logs job/backup-now | sed -n 's/^Backup \(.*\): .*/\1/p')
	[ "$(jq -r .recipient "$volume/$line/manifest.json")" = "$recipient" ] || die "the backup $line is not encrypted"
	k create secret generic $release-identity --from-file=identity="$work/identity.txt" >/dev/null
	k create job --from=cronjob/$release-backup verify --dry-run=client -o json |
		jq '.spec.template.spec |= (.containers[0].args = ["restore", "--verify", "--without-keys", "--identity=/identity/identity", "/backups"] |
			.containers[0].volumeMounts += [{name: "identity", mountPath: "/identity", readOnly: true}] |
			.volumes += [{name: "identity", secret: {secretName: "linkreel-identity"}}])' | k apply -f - >/dev/null
	k wait --for condition=Complete job/verify --timeout 120s >/dev/null || { k logs job/verify; die "the backup cannot be restored"; }
	ok "$(k logs job/verify | tail -n 1)"
	pod=$(k get "pod/$(pod_of localcloud)" -o jsonpath='{.status.podIP}')
	for line in backup:ok auth:refused videos:refused; do reaches "${line%:*}" "$pod:8087" "${line#*:}"; done
	check setup >"$work/later.json"
	operator
	curl -fsS -X DELETE -H "Authorization: Bearer $(token)" "$(operator_url)/admin/v1/keys/$(jq -r .endedId "$work/kept.json")"
	# Nothing is lost yet, and a restore must not overwrite existing data.
	replace --values "$work/backup.yaml" --values "$work/encrypted.yaml" --set restore.enabled=true
	await 120 says 'contains data that was not written by a restore'
	ok "over other data: $(k logs $release-localcloud-0 -c restore | tail -n 1)"
	restore
	check kept --records "$work/kept.json" --before "$before" >"$work/compared.txt" 2>&1 || { cat "$work/compared.txt"; die "the restore is not what was kept"; }
	ok "after the restore: $(grep '^ok ' "$work/compared.txt" | cut -c6- | paste -sd ';')"
	later=$(jq -r .shortUrl "$work/later.json")
	[ "$(status "$later")" = 404 ] || die "$later, which was made after the backup, still exists, so no data was lost"
	operator
	waits true || die "webhooks and the janitor do not wait after the restore"
	curl -fsS -X POST -H "Authorization: Bearer $(token)" -H 'Content-Type: application/json' \
		-d "$(jq '{restoreId, webhooks: true, janitor: true}' "$work/recovery.json")" "$(operator_url)/admin/v1/recovery/resume" >/dev/null
	waits false || die "webhooks and the janitor still wait"
	smoke "Ingress after the restore"
	k delete pod $release-localcloud-0 --wait >/dev/null
	await 120 says 'Nothing to do'
	[ "$(k get cronjob/$release-backup -o jsonpath='{.spec.suspend}')" = true ] || die "backups continue although a restore is enabled"
	await 240 settled
	upgrade --values "$work/backup.yaml" --values "$work/encrypted.yaml"
	await 60 reached
	backup_now
	ok "the next backup took $(<"$work/took.txt") s: $(k logs job/backup-now | head -n 1)"
	installed
}
scheduled() { [ -n "$(k get cronjob/$release-backup -o jsonpath='{.status.lastSuccessfulTime}')" ]; }
idle() { [ -z "$(k get cronjob/$release-backup -o jsonpath='{.status.active}')" ]; }
# backup_now: make a backup as docs/recovery.md says.
backup_now() {
	local start=$EPOCHREALTIME
	date --utc +%FT%T.%NZ >"$work/before.txt"
	k create job --from=cronjob/$release-backup backup-now >/dev/null
	k wait --for condition=Complete job/backup-now --timeout 120s >/dev/null || { k logs job/backup-now; die "no backup"; }
	since "$start" >"$work/took.txt"
}
# since TIME: print the seconds since then.
since() { jq -n "($EPOCHREALTIME - $1) * 10 | round / 10"; }
# replace VALUE...: helm upgrade that does not wait for pods.
replace() {
	local ours
	mapfile -t ours < <(ours)
	h upgrade $release "$chart" "${ours[@]}" "$@" >/dev/null
}
# restore: lose the volumes, follow the steps of docs/recovery.md, and print the seconds after which each step had its effect.
restore() {
	local start=$EPOCHREALTIME laps=()
	k delete cronjob,job -l app.kubernetes.io/instance=$release,app.kubernetes.io/component=backup --cascade=foreground >/dev/null
	k delete deployment,statefulset -l app.kubernetes.io/instance=$release --cascade=foreground >/dev/null
	k wait --for delete pod -l "app.kubernetes.io/instance=$release,app.kubernetes.io/component!=test" --timeout 120s >/dev/null
	laps+=("all pods stopped $(since "$start")")
	k delete pvc data-$release-localcloud-0 data-$release-redis-0 $release-localcloud-objects --timeout 120s >/dev/null
	laps+=("claims deleted $(since "$start")")
	k patch secret $release --type=merge -p "{\"stringData\":{\"token-secret\":\"$(openssl rand -hex 32)\"}}" >/dev/null
	replace --values "$work/backup.yaml" --values "$work/encrypted.yaml" --set "restore.enabled=true,restore.identitySecret=$release-identity"
	laps+=("helm upgrade returned $(since "$start")")
	await 180 says '^Restored '
	laps+=("volumes filled $(since "$start")")
	await 120 redirects "$(jq -r '.links[0].shortUrl' "$work/kept.json")"
	laps+=("first redirect $(since "$start")")
	await 240 settled
	await 60 reached
	laps+=("every pod ready $(since "$start")")
	ok "seconds since the beginning of the restore: $(printf '%s, ' "${laps[@]}")after $(k logs $release-localcloud-0 -c restore | grep '^Restored ')"
	k logs $release-localcloud-0 -c restore | sed 's/^/       /'
}
redirects() { [ "$(status "$1")" = 302 ]; }
# waits BOOL: test whether webhooks and the janitor wait for the operator.
waits() {
	curl -fsS -H "Authorization: Bearer $(token)" "$(operator_url)/admin/v1/recovery" >"$work/recovery.json"
	jq -e ".webhooksPaused == $1 and .janitorPaused == $1" "$work/recovery.json" >/dev/null
}
# says TEXT: test whether the restore of localcloud's pod has logged a line that matches TEXT.
says() { k logs $release-localcloud-0 -c restore 2>/dev/null | grep -q "$1"; }
# reaches COMPONENT ADDRESS ok|refused: test whether a pod with the labels of COMPONENT can connect
# to ADDRESS.
reaches() {
	local got=refused
	k delete pod caller-backup --ignore-not-found --now >/dev/null
	k run caller-backup --restart Never --image localhost/linkreel/check:dev \
		--labels "probe=caller,app.kubernetes.io/name=linkreel,app.kubernetes.io/instance=$release,app.kubernetes.io/component=$1" --overrides "$(jq -cn '{spec: {
		securityContext: {runAsNonRoot: true, seccompProfile: {type: "RuntimeDefault"}}, automountServiceAccountToken: false,
		containers: [{name: "probe", image: "localhost/linkreel/check:dev", imagePullPolicy: "Never", args: (["reach", "--after=10s"] + $ARGS.positional),
			securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: ["ALL"]}}}]}}' --args -- "$2")" >/dev/null
	within 60 finished || die "the probe of $1 does not end"
	! k logs caller-backup | grep -q '^ok *reached' || got=ok
	k delete pod caller-backup --now >/dev/null
	[ "$got" = "$3" ] || die "$1 at $2: $got, want $3"
}
finished() { [[ "$(k get pod/caller-backup -o jsonpath='{.status.phase}')" =~ ^(Failed|Succeeded)$ ]]; }

## uninstall: helm uninstall leaves only the volumes and Secrets, which are kept on purpose.
case_uninstall() {
	h uninstall $release --wait >/dev/null
	await 90 gone
	ok "helm uninstall leaves only the volumes' claims and the Secrets"
}
# Helm does not remove the pod of its test.
gone() { [ -z "$(k get deployment,statefulset,pod,service,ingress,hpa,networkpolicy -l "app.kubernetes.io/instance=$release,app.kubernetes.io/component!=test" -o name)" ]; }

running init || die "the cluster is not running; run make cluster-up"
cases=("$@")
[ $# -gt 0 ] || cases=(images dryrun score install helmtest smoke stories pods policy rollouts people kill freeze hpa keda traces gateway upgrade certificates redis preflight backup release uninstall)
for case in "${cases[@]}"; do
	echo "== $case"
	"case_$case"
done
