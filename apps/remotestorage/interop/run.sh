#!/usr/bin/env bash
# Runs other projects' clients and tests against the remoteStorage application on a
# fleet of two replicas, with requests in turn. Each runs twice.
#
#   run.sh [suite] [client] [browser]     all three without arguments
#
#   suite    the remoteStorage project's tests for servers; RS_SUITE is a checkout
#            of its repository api-test-suite. Needs ruby with rest-client,
#            minitest, minitest-reporters and colored.
#   client   remotestorage.js in Node. Needs node and npm.
#   browser  remotestorage.js in Chromium. Needs node, npm and chromium.
#
# What is downloaded and the browser's screenshots stay in bin/interop.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
work=$root/bin/interop
temp=$(mktemp -d)
mkdir -p "$work"
[ $# -gt 0 ] || set -- suite client browser

(cd "$root" && CGO_ENABLED=0 go build -trimpath -o "$work/dwk" ./cmd/dwk)
dwk=$work/dwk
cat > "$temp/dwk.yaml" <<END
data_dir: $temp/data
listen: 127.0.0.1:0
databases: [{name: RS_ACCOUNTS}]
buckets: [{name: RS_BODIES}]
caches: [{name: RS_CACHE}]
queues: [{name: remotestorage}]
crons: []
mounts: [{path: /rs, app: remotestorage}]
END
export DWK_CONFIG=$temp/dwk.yaml
"$dwk" dev --replicas 2 -o json > "$temp/fleet.json" 2> "$temp/fleet.log" &
fleet=$!
trap 'kill $fleet 2> /dev/null; wait $fleet 2> /dev/null || true; rm -rf "$temp"' EXIT
until [ -s "$temp/fleet.json" ]; do
  kill -0 $fleet 2> /dev/null || { cat "$temp/fleet.log"; exit 1; }
  sleep 0.2
done
field() { node -e 'process.stdout.write(JSON.parse(require("fs").readFileSync(0, "utf8"))[process.argv[1]])' "$1"; }
url=$(field url < "$temp/fleet.json")
set -a
# shellcheck disable=SC1090
. "$(field environment < "$temp/fleet.json")"
set +a

password=correct-horse-battery
account() { printf '%s\n' $password | "$dwk" -q app remotestorage create "$1" --password-file - > "$temp/out"; }
token() { "$dwk" app remotestorage token "$1" "$2" -o json | field token; }
packages() { [ -d "$work/node_modules/$1" ] || npm install --silent --no-save --no-audit --no-fund --prefix "$work" remotestoragejs@2.0.0-beta.10 playwright-core@1.65.1; }

suite() {
  : "${RS_SUITE:?is not set: it is a checkout of remotestorage/api-test-suite}"
  account "suite$1"
  cp -r "$RS_SUITE/." "$temp/suite$1"
  cat > "$temp/suite$1/config.yml" <<END
storage_base_url: $url/rs/store/suite$1
storage_base_url_other: $url/rs/store/other
category: api-test
token: "$(token "suite$1" api-test:rw)"
read_only_token: "$(token "suite$1" api-test:r)"
root_token: "$(token "suite$1" '*:rw')"
END
  (cd "$temp/suite$1" && ruby -W0 -I. -r"$here/suite.rb" api_spec.rb)
}

client() {
  packages remotestoragejs
  [ "$1" -gt 1 ] || account client # the second run finds what the first has left
  NODE_PATH=$work/node_modules node "$here/client.mjs" "$url" client "$(token client api-test:rw)"
}

browser() {
  packages playwright-core
  [ "$1" -gt 1 ] || account browser
  NODE_PATH=$work/node_modules CHROMIUM=$(command -v chromium) node "$here/browser.mjs" "$url" browser $password "$(token browser '*:rw')" "$work"
}

account other
for part in "$@"; do
  for round in 1 2; do
    echo "== $part, run $round"
    $part $round
  done
done
echo "== all: ok"
