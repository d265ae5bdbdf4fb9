#!/usr/bin/env bash
# The programs that the operators' pages call, for TestOperatorsSnippetsRunAsPasted. Each link to this file is one
# program. helm and kubectl are the real programs: helm renders the chart of this repository instead of installing it,
# and kubectl calls the test's API server. The others check what they get and record it in $CALLS.
set -euo pipefail
name=${0##*/}
{ printf '%s\x1f' "$name" "$@"; echo; } >> "$CALLS"
fail() { echo "$name: $*" >&2; exit 1; }

# flags VERB ARGS…: helm must know every flag.
flags() {
  local verb=$1 help flag; shift
  [ -e "$CALLS.$verb" ] || "$HELM" "$verb" --help > "$CALLS.$verb"
  help=$(< "$CALLS.$verb")
  for flag; do
    case $flag in --*) grep -qE -- "(^|[ ,])${flag%%=*}([ =]|\$)" <<< "$help" || fail "$verb has no flag $flag" ;; esac
  done
}

case $name in
helm)
  verb=$1; shift
  flags "$verb" "$@"
  case $verb in
  install | upgrade)
    release=$1 from=$2; shift 2
    at=$CHART
    case $from in
    *devstack) at=$(dirname "$CHART")/devstack ;;
    oci://ghcr.io/linkreel/charts/linkreel | charts/linkreel) ;;
    dist/release/linkreel-*.tgz) [ -e "$from" ] || fail "there is no $from" ;;
    *) fail "unknown chart $from" ;;
    esac
    args=()
    while [ $# -gt 0 ]; do
      case $1 in
      --version | --timeout) shift ;;
      --reset-then-reuse-values) read -ra reused <<< "${RELEASE_VALUES-}"; args=("${reused[@]}" "${args[@]}") ;;
      --wait | --create-namespace) ;;
      *) args+=("$1") ;;
      esac
      shift
    done
    "$HELM" template "$release" "$at" "${args[@]}" > "$CALLS.rendered"
    "$CURL" -sf --data-binary @"$CALLS.rendered" "$API/installed" ;;
  template)
    release=$1 from=$2; shift 2
    [ "$from" = charts/linkreel ] || fail "unknown chart $from"
    exec "$HELM" template "$release" "$CHART" "$@" ;;
  pull) rm -rf linkreel; cp -r "$CHART" linkreel ;;
  test | uninstall | rollback) [ "$1" = linkreel ] || fail "unknown release $1" ;;
  *) fail "unexpected command $verb" ;;
  esac ;;
kubectl)
  case " $* " in
  *" port-forward "*)
    for word; do case $word in */*) "$KUBECTL" -n linkreel get "$word" > /dev/null ;; esac; done
    exec tail -f /dev/null ;;
  *" jsonpath="* | *" -o jsonpath"*)
    out=$("$KUBECTL" "$@")
    [ -n "$out" ] || fail "$*: there is no such field"
    printf %s "$out" ;;
  *" exec "*) exec "$KUBECTL" -n linkreel get pod "$5" ;; # kubectl -n linkreel exec -it POD
  *" create job --from="*) # Debian's kubectl 1.20 cannot read a CronJob of batch/v1
    words=("$@") from=${words[4]#--from=} name=${words[5]} # kubectl -n linkreel create job --from=cronjob/NAME JOB
    job=$("$KUBECTL" -n linkreel get "$from" -o json |
      jq --arg name "$name" '{apiVersion: "batch/v1", kind: "Job", metadata: {name: $name, namespace: "linkreel"}, spec: .spec.jobTemplate.spec}')
    case " $* " in *" --dry-run=client "*) printf '%s\n' "$job" ;; *) "$KUBECTL" create --validate=false -f - <<< "$job" ;; esac ;;
  *" create "*" --dry-run"*) exec "$KUBECTL" "$@" ;;
  *" create "*) "$KUBECTL" "$@" --dry-run=client -o json | "$KUBECTL" create --validate=false -f - ;; # by itself, it sends protobuf
  *" apply "*) exec "$KUBECTL" "$@" --validate=false ;;
  *" wait --for=delete "*) out=$("$KUBECTL" "$@" 2>&1) || case $out in # Debian's kubectl 1.20 fails if nothing is left
    *"no matching resources found"*) ;; *) fail "$out" ;; esac ;;
  *) exec "$KUBECTL" "$@" ;;
  esac ;;
gcloud) # TestOperatorsSnippetsRunAsPasted checks the recorded commands and flags
  for word; do
    case $word in
    --cors-file=* | --lifecycle-file=*) jq -e . "${word#*=}" > /dev/null ;;
    --output-file=*) echo '{}' > "${word#*=}" ;;
    esac
  done
  case " $* " in *" --format="*) echo 10.20.0.4 ;; esac ;;
firebase)
  [ "$*" = "deploy --only firestore:indexes --project my-project" ] || fail "unexpected arguments $*"
  jq -e .indexes "$(jq -er .firestore.indexes firebase.json)" > /dev/null ;;
again) exec "$CURL" -sf -X POST "$API/again" ;;
curl)
  out=/dev/stdout
  for word; do [ "${previous-}" = -o ] && out=$word; previous=$word; done
  echo '{"id":"acc_1","url":"http://localhost"}' > "$out" ;;
redis-cli) case " $* " in *" --scan "*) printf 'a\nb c\n' ;; *" unlink "*) [ $# -eq 4 ] || fail "unlink got several keys" ;; esac ;;
yq) [ "$*" = .spec ] || fail "unexpected arguments $*"; sed -e '1,/^spec:/d' -e 's/^  //' ;;
go)
  case $1 in
  tool) [ -s "${*: -1}" ] || fail "there is no file ${*: -1}" ;;
  test) [ -d "$REPOSITORY/${2%/...}" ] || fail "there is no package $2" ;;
  *) fail "unexpected command $*" ;;
  esac ;;
make)
  for word; do
    case $word in
    *=*) ;;
    *) grep -qE "^([a-z-]+ )*$word( [a-z-]+)*:" "$REPOSITORY/Makefile" "$REPOSITORY/tests/cluster/cluster.mk" || fail "there is no target $word" ;;
    esac
    case $word in PROOF=./* | PKG=./* | BUSY=./*) path=${word#*=}; [ -d "$REPOSITORY/${path%/...}" ] || fail "there is no folder $word" ;; esac
    case $word in RUN=*) grep -rq "^func ${word#RUN=}" "$REPOSITORY/tests" || fail "there is no test $word" ;; esac
  done
  case $1 in chart-local) mkdir -p dist/release; : > dist/release/linkreel-0.0.0-g1234567.tgz ;; esac ;;
unshare | ip) case "$*" in "--net bash" | "link set lo up") ;; *) fail "unexpected arguments $*" ;; esac ;;
rsync) from=${*: -2:1}; [ -d "$from" ] || fail "there is no folder $from" ;;
linkreel)
  case "$1 ${2-}" in
  "up ") # bash cannot catch a SIGINT in the background
    exec python3 -c 'import signal; signal.signal(signal.SIGINT, signal.SIG_DFL); print("Linkreel is ready", flush=True); signal.pause()' ;;
  esac
  case "$1 ${2-}" in "admin recovery" | "restore "* | "backup "* | "move "*) ;; *) fail "unexpected command $*" ;; esac ;;
esac
