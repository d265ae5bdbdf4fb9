#!/bin/bash
# Install the chart on the running cluster and try everything that matters about
# it; prints a line with figures for each thing that was shown, and stops at the
# first that is not so.
#
#   test.sh [CASE]...      default: all, in the order below
#
# ROLLOUTS (10) restarts of each service, RATE (200) requests a second under them.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

namespace=linkreel release=linkreel
rollouts=${ROLLOUTS:-10} rate=${RATE:-200}
chart=$root/charts/linkreel values=$root/charts/linkreel/ci/cluster.yaml
images=$root/dist/images
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

# troubles WHY: end with what the pods say.
troubles() {
	k get pods -o wide
	k get events --field-selector type=Warning --sort-by .lastTimestamp | tail -n 20
	die "$*"
}

# fails COMMAND...: COMMAND must fail.
fails() { if "$@" >/dev/null 2>&1; then die "should have failed: $*"; fi; }

# check COMMAND ...: the check program, sent to the ingress whatever the host.
check() { (checking "$@"); }
# checking COMMAND ...: the same in place of this shell, so that its PID is the program's.
checking() {
	local command=$1
	shift
	LINKREEL_ADMIN_TOKEN=$(token) exec "$images/bin/check" "$command" --base "$base" --short "$short" --operator "$(operator_url)" \
		--via "linkreel.localhost/=127.0.0.1:$http_port" --via "go.linkreel.localhost/=127.0.0.1:$http_port" \
		--via "media.linkreel.localhost/=127.0.0.1:$http_port" "$@"
}
token() { k get secret $release -o jsonpath='{.data.admin-token}' | base64 -d; }

# operator: the operator API on a port of the host, which no policy lets in.
operator() {
	if [ -n "${operator_pid-}" ] && kill -0 "$operator_pid" 2>/dev/null && reachable; then return; fi
	kubectl --namespace $namespace port-forward service/$release-auth :8082 >"$work/operator.txt" 2>/dev/null &
	operator_pid=$!
	background+=("$operator_pid")
	await 20 reachable
}
reachable() { curl -s -o /dev/null --max-time 2 "$(operator_url)"; }
# operator_url: kubectl says which port it has taken.
operator_url() { sed -n 's/^Forwarding from \(127[0-9.:]*\) .*/http:\/\/\1/p' "$work/operator.txt"; }

# Values of every release: images keep their names here, so that only the
# annotation tells new ones from old.
ours() { printf '%s\n' --values "$values" --set "hosts.port=$http_port,defaults.podAnnotations.images=sum-$(cat "$work"/*.sum | sha256sum | head -c 12)"; }
# upgrade VALUE...: helm upgrade with these values on top.
upgrade() {
	local ours
	mapfile -t ours < <(ours)
	h upgrade $release "$chart" "${ours[@]}" "$@" --wait --timeout 300s >/dev/null
}

# under KIND LABEL COMMAND...: no request of KIND may fail while COMMAND runs.
under() {
	local kind=$1 label=$2 pid output
	shift 2
	checking load --kind "$kind" --rate "$rate" --traffic "$work/traffic.json" >"$work/load.txt" 2>&1 &
	pid=$!
	background+=("$pid")
	sleep 2
	"$@" >"$work/under.txt" 2>&1 || { cat "$work/under.txt"; troubles "$label failed"; }
	sleep 2
	kill -TERM $pid   # A shell's background processes ignore SIGINT.
	wait $pid || { cat "$work/load.txt"; die "$label: requests failed"; }
	output=$(<"$work/load.txt")
	ok "$label, $rate/s wanted: $output"
}

# keeping COMMAND...: what is acknowledged while COMMAND runs must not be lost.
keeping() {
	local pid
	operator
	checking ledger >"$work/ledger.txt" 2>&1 &
	pid=$!
	background+=("$pid")
	await 20 grep -q begun "$work/ledger.txt"
	sleep 5
	"$@" >"$work/under.txt" 2>&1 || { cat "$work/under.txt"; troubles "$* failed"; }
	sleep 5
	kill -TERM $pid
	wait $pid || { cat "$work/ledger.txt"; die "$*: something acknowledged is lost"; }
}

pod_of() { k get pods -l app.kubernetes.io/component="$1" -o jsonpath='{.items[0].metadata.name}'; }
restart() { k rollout restart deployment/$release-"$1" && k rollout status deployment/$release-"$1" --timeout 180s; }
restarts() {
	local i
	for ((i = 0; i < rollouts; i++)); do restart "$1"; done
}
settled() {
	local lines
	lines=$(k get pods --no-headers -l "app.kubernetes.io/instance=$release,app.kubernetes.io/component!=test")
	! grep -qv ' 1/1 *Running ' <<<"$lines"
}

## images: give the node Linkreel's images from dist/images (make images).
case_images() {
	local archive sum
	for archive in "$images"/*.tar; do
		[[ $archive != *.layer.tar ]] || continue
		sum=$(stat -c '%Y %s' "$archive")
		[ "$sum" != "$(cat "$work/$(basename "$archive").sum" 2>/dev/null)" ] || continue
		import_archive "$archive"
		echo "$sum" >"$work/$(basename "$archive").sum"
	done
	ok "images are with the node"
}

## dryrun: the API server accepts what every ci/*.yaml renders, and no pod breaks the restricted standard.
case_dryrun() {
	local file output
	kubectl apply --server-side -f "$state/crds-optional" >/dev/null
	kubectl delete namespace dry --ignore-not-found --timeout 60s >/dev/null
	kubectl create namespace dry >/dev/null
	kubectl label namespace dry --overwrite pod-security.kubernetes.io/{enforce,warn}=restricted >/dev/null
	for file in "$chart"/ci/*.yaml; do
		output=$(helm template try "$chart" --namespace dry --values "$file" | kubectl apply --namespace dry --dry-run=server -f - 2>&1) ||
			{ echo "$output"; die "$file is refused"; }
		[[ $output != *Warning* ]] || { echo "$output"; die "$file draws a warning"; }
		ok "$(basename "$file"): $(wc -l <<<"$output") objects"
	done
	kubectl delete namespace dry --wait=false >/dev/null
}

## install: helm install --wait from nothing; all pods are ready in a namespace that enforces the restricted standard.
case_install() { installed; }

# installed VALUE...: a release from nothing, with these values on top.
installed() {
	local start=$SECONDS ours
	mapfile -t ours < <(ours)
	rm -f "$work"/{fresh,traffic.json}
	h uninstall $release --wait >/dev/null 2>&1 || true
	kubectl delete namespace $namespace --ignore-not-found --timeout 120s >/dev/null
	kubectl create namespace $namespace >/dev/null
	kubectl label namespace $namespace pod-security.kubernetes.io/{enforce,warn}=restricted >/dev/null
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
	ok "the Ingress refuses a host that is nobody's"
}

# smoke WAY: the smoke test through the Ingress or the Gateway.
smoke() {
	local output
	operator
	output=$(check smoke) || { echo "$output"; die "smoke through the $1 failed"; }
	ok "smoke through the $1: $(grep -c '^ok ' <<<"$output") checks,$(grep 'upload to ready' <<<"$output")"
}

## stories: the end-to-end stories and the contract tests, through the Ingress by host name.
case_stories() {
	# They make names that can be taken once.
	[ -f "$work/fresh" ] || case_install
	stories Ingress
}

# stories WAY: the stories on a fresh release, through the Ingress or the Gateway.
stories() {
	rm "$work/fresh"
	operator
	check stack --upload "http://media.linkreel.localhost:$http_port" >"$work/stack.json"
	sed 's/^127\.0\.0\.1.*/& linkreel.localhost go.linkreel.localhost media.linkreel.localhost/' /etc/hosts >"$work/hosts"
	# A hosts file of its own, for these processes alone.
	(cd "$root" && LINKREEL_STACK=$work/stack.json unshare --mount bash -euo pipefail -c '
		mount --bind "$0" /etc/hosts
		exec go test -count=1 -timeout 15m ./tests/e2e/... ./tests/contract/...' "$work/hosts") >"$work/stories.txt" 2>&1 ||
		{ tail -n 60 "$work/stories.txt"; die "stories failed"; }
	ok "stories through the $1: $(tr '\n' ' ' <"$work/stories.txt")"
}

## pods: what a container may do: no capability, seccomp, a root that cannot be written, no token.
case_pods() {
	local pod
	pod=$(pod_of worker)
	k exec "$pod" -- bash -c '
		grep -q "^CapEff:.0000000000000000$" /proc/self/status && grep -q "^Seccomp:.2$" /proc/self/status &&
		! touch /x 2>/dev/null && touch /tmp/x && [ ! -e /var/run/secrets/kubernetes.io ] && [ "$(id -u)" = 65532 ]' ||
		die "the worker's container may do too much"
	ok "no capabilities, seccomp filter, read-only root, no API token"
}

## policy: NetworkPolicies keep out and in what has no business there.
case_policy() {
	local pod
	k delete pod stranger --ignore-not-found --now >/dev/null
	k run stranger --restart Never --image-pull-policy Never --image localhost/linkreel/check:dev --overrides '{"spec": {
		"securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}}, "automountServiceAccountToken": false,
		"containers": [{"name": "stranger", "image": "localhost/linkreel/check:dev", "imagePullPolicy": "Never",
			"args": ["reach", "'$release-redis':6379", "'$release-localcloud':8085", "'$release-auth':8090", "'$release-auth':8082", "'$release-events':8090"],
			"securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}]}}' >/dev/null
	k wait --for jsonpath='{.status.phase}'=Failed pod/stranger --timeout 60s >/dev/null
	[ "$(k logs stranger | grep -c 'reached')" = 0 ] || die "a stranger reached: $(k logs stranger)"
	k delete pod stranger --now >/dev/null
	ok "a stranger reaches neither Redis, Firestore, key verification, events' internal port nor the operator API"
	pod=$(pod_of worker)
	k exec "$pod" -- bash -c "timeout 3 bash -c '</dev/tcp/$release-redis/6379'" || die "a worker does not reach Redis"
	fails k exec "$pod" -- bash -c "timeout 3 bash -c '</dev/tcp/$release-auth/8082'"
	fails k exec "$pod" -- bash -c "timeout 3 bash -c '</dev/tcp/$release-links/8080'"
	fails k exec "$pod" -- bash -c "timeout 3 bash -c '</dev/tcp/$release-events/8090'"
	fails k exec "$pod" -- bash -c "timeout 3 bash -c '</dev/tcp/$host_ip/22'"
	ok "a worker reaches Redis, and neither the operator API, links nor the world"
	# The image of events has no shell: a pod with its labels goes where it may go.
	k delete pod caller --ignore-not-found --now >/dev/null
	k run caller --restart Never --image-pull-policy Never --image localhost/linkreel/check:dev --labels "app.kubernetes.io/name=linkreel,app.kubernetes.io/instance=$release,app.kubernetes.io/component=events,probe=caller" --overrides '{"spec": {
		"securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}}, "automountServiceAccountToken": false,
		"containers": [{"name": "caller", "image": "localhost/linkreel/check:dev", "imagePullPolicy": "Never",
			"args": ["reach", "'$release-auth':8082", "'$release-links':8080", "'$host_ip':22"],
			"securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}]}}' >/dev/null
	k wait --for jsonpath='{.status.phase}'=Failed pod/caller --timeout 60s >/dev/null
	[ "$(k logs caller | grep -c 'reached')" = 0 ] || die "events reached: $(k logs caller)"
	k delete pod caller --now >/dev/null
	ok "events, which calls users' addresses, reaches neither the operator API, links nor the host"
}

traffic() {
	operator
	[ -s "$work/traffic.json" ] || check setup >"$work/traffic.json"
}

## rollouts: rolling restarts of each HTTP service under kept connections; none fails.
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

## upgrade: helm upgrade from the chart version before, with its services, and helm rollback to it, under mixed load; none fails. localcloud, which is one process, stays.
case_upgrade() {
	local before
	traffic
	before=$(previous)
	if [ -z "$before" ]; then
		echo "     no earlier chart version in this history: every pod is replaced by the same version"
		upgrade --set defaults.podAnnotations.generation=one
		under mixed "helm upgrade" upgrade --set defaults.podAnnotations.generation=two
	else
		h upgrade $release "$before/charts/linkreel" --values "$before/charts/linkreel/ci/cluster.yaml" --wait --timeout 300s >/dev/null \
			--set "hosts.port=$http_port,image.tag=$(<"$before/tag"),localcloud.image=localhost/linkreel/localcloud:dev"
		under mixed "helm upgrade from chart $(version_of "$before/charts/linkreel/Chart.yaml") to $(version_of "$chart/Chart.yaml")" upgrade
	fi
	await 60 settled
	before=$(h history $release -o json | jq '.[-2].revision')
	under mixed "helm rollback" h rollback $release "$before" --wait --timeout 300s
	upgrade
}
version_of() { sed -n 's/^version: //p' "$1"; }

# previous: a folder with the sources of the chart version before this one; the
# node has its images by the tag in the file "tag". Nothing in a shallow clone.
previous() {
	local commit now old folder
	now=$(version_of "$chart/Chart.yaml")
	for commit in $(git -C "$root" log --format=%H -- charts/linkreel/Chart.yaml); do
		old=$(version_of <(git -C "$root" show "$commit:charts/linkreel/Chart.yaml"))
		[ "$old" != "$now" ] || continue
		# The last commit with that version, not the one that brought it.
		commit=$(git -C "$root" log -1 --format=%H "$(git -C "$root" log --format=%H -S"version: $now" --reverse -- charts/linkreel/Chart.yaml | head -n 1)^")
		folder=$state/previous/$commit
		if [ ! -s "$folder/tag" ]; then
			rm -rf "$folder"
			mkdir -p "$folder"
			git -C "$root" archive "$commit" charts | tar -x -C "$folder"
			previous_images "$commit" "$old" "$folder" >&2
		fi
		echo "$folder"
		return
	done
}

# previous_images COMMIT VERSION FOLDER: build the images of COMMIT, which takes
# minutes the first time. PREVIOUS_IMAGES=no takes the present ones in their place.
previous_images() {
	local source=$work/source name
	if [ "${PREVIOUS_IMAGES-}" = no ]; then
		echo dev >"$3/tag"
		return
	fi
	rm -rf "$source"
	git clone --quiet --shared --no-checkout "$root" "$source"
	git -C "$source" checkout --quiet "$1"
	(cd "$source" && LAYERS=${LAYERS:-$images} TAG=$2 images/build.sh auth links videos transcoding-worker)
	for name in auth links videos transcoding-worker; do import_archive "$source/dist/images/$name.tar"; done
	rm -rf "$source"
	echo "$2" >"$3/tag"
}

## kill: workers killed in the middle of jobs; every video is ready. Redis and localcloud killed; redirects go on, and nothing acknowledged is lost.
case_kill() {
	local pid killed=()
	traffic
	film
	checking videos --count 4 --renditions 3 --file "$work/film.mp4" >"$work/videos.txt" 2>&1 &
	pid=$!
	background+=("$pid")
	for _ in 1 2 3; do
		await 120 working
		killed+=("$(tail -n 1 "$work/videos.txt" | tr -s ' ')")
		k delete pod -l app.kubernetes.io/component=worker --grace-period=0 --force >/dev/null 2>&1
		k rollout status deployment/$release-worker --timeout 60s >/dev/null
		sleep 1   # What was begun is no longer news.
	done
	wait $pid || { cat "$work/videos.txt"; die "videos were lost"; }
	ok "all worker pods killed when${killed[0]},${killed[1]},${killed[2]}: $(grep '^ok ' "$work/videos.txt" | cut -c6-)"
	for component in redis localcloud; do
		keeping kill_one $component
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

# freeze STATE: FROZEN stops every container of the release, THAWED lets it go on.
freeze() {
	local uid group
	for uid in $(k get pods -l app.kubernetes.io/instance=$release -o jsonpath='{.items[*].metadata.uid}'); do
		for group in /sys/fs/cgroup/freezer/"$cgroup"/kubepods/{,burstable/,besteffort/}pod"$uid"; do
			[ ! -d "$group" ] || echo "$1" >"$group/freezer.state"
		done
	done
}

## freeze: every container of the release stopped for 30 s; what was acknowledged before, meanwhile and after is there, and all is well without a hand.
case_freeze() {
	keeping freeze_all
	check smoke >"$work/smoke.txt" 2>&1 || { cat "$work/smoke.txt"; die "smoke after the freeze failed"; }
	ok "all containers stopped for 30 s, first answer $(<"$work/first.txt") s after; $(grep '^ok ' "$work/ledger.txt" | cut -c6-); smoke passes"
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

## gateway: smoke and stories on a release that is installed with Gateway API in place of the Ingress.
case_gateway() {
	installed --set 'ingress.enabled=false,httpRoute.enabled=true,httpRoute.parentRefs[0].name=linkreel'
	[ -z "$(k get ingress -o name)" ] || die "there is an Ingress"
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

# routed HOST: the ingress sends HOST somewhere; its own answer is this text.
routed() { [ "$(curl -s --resolve "$1:$http_port:127.0.0.1" "http://$1:$http_port/no-such-slug")" != "404 page not found" ]; }

## traces: a create and a cold redirect are one trace each, across services; a transcode is a trace that links to the call which made the video.
case_traces() {
	local viewer name made
	h upgrade --install devstack "$root/charts/devstack" --set images.redis=localhost/linkreel/redis:dev --wait --timeout 120s >/dev/null
	upgrade --set telemetry.endpoint=http://devstack-otelview:4318 \
		--set 'networkPolicy.telemetryTo[0].podSelector.matchLabels.app=devstack-otelview'
	await 60 settled   # Pods of before, which send no spans, still answer while they stop.
	viewer=http://$(k get service devstack-otelview -o jsonpath='{.spec.clusterIP}'):4318
	operator
	check setup >"$work/traced.json"
	curl -s -o /dev/null --resolve "go.linkreel.localhost:$http_port:127.0.0.1" "$(jq -r .shortUrl "$work/traced.json")"
	check videos --count 1 >/dev/null
	holds 'POST /api/v1/links' 'links: POST /api/v1/links' 'auth: verify key' 'Firestore|firestore'
	holds 'GET /:slug' 'links: GET /:slug' 'firestore.*DocumentRef.Get'
	holds 'transcoding-worker transcode' 'transcode  -> ' 'download' 'publish'
	made=$(sed -n 's/.* -> \([0-9a-f]*\)$/\1/p' "$work/trace.txt" | head -n 1)
	await 30 comes_from_videos "$made"
	ok "the transcode's trace links to $(curl -sS "$viewer/traces/$made" | head -n 1 | tr -s ' ')"
	h uninstall devstack --wait >/dev/null
	upgrade
}
comes_from_videos() { [[ "$(curl -sS "$viewer/traces/$1")" = *"videos: "* ]]; }
# holds NAME TEXT...: the first trace called NAME has spans with these TEXTs, by
# and by, since each process sends its spans when it gets to it; shows the trace.
holds() {
	local name=$1
	shift
	await 60 spans_of "$name" "$@"
	ok "$name is one trace:"
	sed 's/^/       /' "$work/trace.txt"
}
spans_of() {
	local id text
	id=$(curl -sS --get --data-urlencode "name=$1" "$viewer/traces" | head -n 1 | cut -d' ' -f1)
	shift
	curl -sS --fail "$viewer/traces/$id" >"$work/trace.txt"
	for text in "$@"; do grep -qE -e "$text" "$work/trace.txt" || return 1; done
}

## uninstall: nothing is left but volumes and Secrets, which are kept on purpose.
case_uninstall() {
	h uninstall $release --wait >/dev/null
	await 90 gone
	ok "helm uninstall leaves the volumes' claims and the Secrets alone"
}
# Helm leaves the pod of its test.
gone() { [ -z "$(k get deployment,statefulset,pod,service,ingress,hpa,networkpolicy -l "app.kubernetes.io/instance=$release,app.kubernetes.io/component!=test" -o name)" ]; }

running init || die "the cluster does not run; make cluster-up"
cases=("$@")
[ $# -gt 0 ] || cases=(images dryrun install helmtest smoke stories pods policy rollouts upgrade kill freeze hpa gateway traces uninstall)
for case in "${cases[@]}"; do
	echo "== $case"
	"case_$case"
done
