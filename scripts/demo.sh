#!/usr/bin/env bash
# The flights example on the distributed runner, with RocksDB and checkpoints on local files, and killed on the way:
# first a worker, then the coordinator, which is started again with --restore=latest. The answer is compared with a
# plain loop's over the same file.
#
#   scripts/demo.sh [input.parquet] [flags of the example]
#
# WORKERS_KILLED (1) says how many workers are killed, COORDINATOR_KILLED (1) how often the coordinator; BINARY is a
# program built before; BACKEND (rocksdb) and CHECKPOINTS (file:///…) are where state and checkpoints are kept.
set -euo pipefail
cd "$(dirname "$0")/.."

input=${1:-examples/flights/testdata/flights-100k.parquet}
shift || true
work=$(mktemp -d)
port=$((20000 + RANDOM % 20000))
api=http://127.0.0.1:$port/api/v1
pid=
trap 'if [ -n "$pid" ]; then kill -9 "$pid" 2>/dev/null || true; wait "$pid" 2>/dev/null || true; fi; rm -rf "$work"' EXIT

binary=${BINARY:-$work/flights}
if [ -z "${BINARY:-}" ]; then
	echo "building the example with RocksDB (the first time takes some minutes) ..."
	go build -tags rocksdb -o "$binary" ./examples/flights
fi
rows=$(go run ./examples/flights/internal/check -rows "$input")
rate=${RATE:-$((rows / 12))} # a dozen seconds

start() {
	"$binary" --runner=distributed --workers=2 --parallelism=4 --state-backend="${BACKEND:-rocksdb}" --state-cache=64KiB \
		--checkpoint-dir="${CHECKPOINTS:-file://$work/checkpoints}" --checkpoint-interval=500ms --max-rate="$rate" --http="127.0.0.1:$port" \
		--input="$input" --output="$work/out" "$@" 2>>"$work/log" &
	pid=$!
}

get() { curl -sf --max-time 5 "$api/$1" || echo '{}'; }
number() { grep -o "\"$1\": *[0-9]*" | head -1 | grep -o '[0-9]*$' || echo 0; }
read_so_far() { get steps | tr '{' '\n' | grep '"read flights"' | number recordsOut; }

# read_now is read_so_far just after a worker has reported, which it does once a second
read_now() {
	local was
	was=$(read_so_far)
	for _ in $(seq 40); do
		sleep 0.05
		[ "$(read_so_far)" = "$was" ] || break
	done
	read_so_far
}

# wait_for CHECKPOINTS: so many were completed by this coordinator, and some rows are committed
wait_for() {
	local done=0
	for _ in $(seq 600); do
		done=$(get checkpoints | number completed)
		if [ "$done" -ge "$1" ] && ls "$work"/out/*.jsonl >/dev/null 2>&1; then
			return
		fi
		if ! kill -0 "$pid" 2>/dev/null; then
			echo "the job ended before $1 checkpoints were completed" >&2
			tail -20 "$work/log" >&2
			exit 1
		fi
		sleep 0.1
	done
	echo "no $1 checkpoints after a minute; completed: $done" >&2
	exit 1
}

extra=("$@")
start ${extra[@]+"${extra[@]}"}
wait_for 3
total=0
for _ in $(seq "${WORKERS_KILLED:-1}"); do
	before=$(read_now)
	total=$((total + before))
	echo "read $before of $rows records since the last restore, checkpoint $(get checkpoints | number latestId): killing a worker"
	kill -9 "$(pgrep -P "$pid" | head -1)"
	wait_for $(($(get checkpoints | number completed) + 2))
	echo "attempt $(get job | number attempt), restored checkpoint $(get job | number restoredCheckpoint)"
done
for _ in $(seq "${COORDINATOR_KILLED:-1}"); do
	before=$(read_now)
	total=$((total + before))
	echo "read $before records since the last restore, checkpoint $(get checkpoints | number latestId): killing the coordinator"
	kill -9 "$pid"
	wait "$pid" 2>/dev/null || true
	start --restore=latest ${extra[@]+"${extra[@]}"}
	wait_for 1
	echo "started again from checkpoint $(get job | number restoredCheckpoint)"
done
echo "running to the end ..."
if ! wait "$pid"; then
	pid=
	tail -20 "$work/log" >&2
	exit 1
fi
pid=
last=$(grep -E '^ *read flights ' "$work/log" | tail -1 | tr -d , | awk '{ print $4 }')
echo "read $last records since the last restore: $((total + last)) in all, of $rows: what came after a restored checkpoint is read again"
go run ./examples/flights/internal/check "$input" "$work/out"
