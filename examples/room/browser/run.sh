#!/usr/bin/env bash
# Runs the page in Chromium on a fleet of two replicas, which are replaced one after
# the other while two people chat. It runs twice: the second finds what the first has
# left. Needs node, npm and chromium; what is downloaded and the screenshots stay in
# bin/browser.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
work=$root/bin/browser
temp=$(mktemp -d)
mkdir -p "$work"
(cd "$root" && CGO_ENABLED=0 go build -trimpath -o "$work/room" ./examples/room/cmd/room)
[ -d "$work/node_modules/playwright-core" ] || npm install --silent --no-save --no-audit --no-fund --prefix "$work" playwright-core@1.65.1
cat > "$temp/room.yaml" <<YAML
data_dir: $temp/data
listen: 127.0.0.1:0
mounts: [{path: /room, app: room, settings: {presence_seconds: 15}}]
buckets: [{name: ROOM_FILES}]
YAML
export DWK_CONFIG=$temp/room.yaml
fleet=
stop() { [ -z "$fleet" ] || { kill "$fleet" 2> /dev/null || true; wait "$fleet" || true; fleet=; }; }
trap 'stop; rm -rf "$temp"' EXIT
for round in 1 2; do
  "$work/room" dev --replicas 2 -o json > "$temp/fleet.json" 2> "$temp/fleet.log" &
  fleet=$!
  until [ -s "$temp/fleet.json" ]; do
    kill -0 "$fleet" 2> /dev/null || { cat "$temp/fleet.log"; exit 1; }
    sleep 0.2
  done
  echo "== run $round"
  NODE_PATH=$work/node_modules CHROMIUM=$(command -v chromium) ROOM=$work/room \
    node "$here/chat.mjs" "$temp/fleet.json" "$round" "$work" || { tail -n 50 "$temp/fleet.log"; exit 1; }
  kill "$fleet" && wait "$fleet" # in order, or this fails
  fleet=
  : > "$temp/fleet.json"
done
echo "== all: ok"
