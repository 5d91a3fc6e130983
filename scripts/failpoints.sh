#!/usr/bin/env bash
# The flights example on the distributed runner, killed (kill -9) once at each named failpoint: workers are replaced, a
# killed coordinator is started again with --restore=latest. After each the answer must equal a plain loop's.
#
#   scripts/failpoints.sh [input.parquet]
#
# BINARY is a program built before; BACKEND, RATE and CHECKPOINTS (each point gets a directory in it) as in
# scripts/demo.sh, MODE is --checkpoint-mode. Each kill comes after checkpoints that are then restored.
set -euo pipefail
cd "$(dirname "$0")/.."
input=${1:-examples/flights/testdata/flights-100k.parquet}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
binary=${BINARY:-$work/flights}
[ -n "${BINARY:-}" ] || go build -tags rocksdb -o "$binary" ./examples/flights
go build -o "$work/check" ./examples/flights/internal/check
rows=$("$work/check" -rows "$input")
for point in after-prepare before-publish after-publish mid-commit mid-firing mid-upload mid-restore; do
	dir=$work/$point
	mkdir -p "$dir/once"
	kills=1
	case $point in
	after-prepare | mid-upload) points=$point=kill@15 ;; # about four in each checkpoint
	mid-firing) points=$point=kill@3 ;; # a small input has few long firings
	mid-commit) points=$point=kill@5 ;;
	mid-restore) points=after-prepare=kill@15,mid-restore=kill@3 kills=2 ;; # there is a restore only after a kill
	*) points=$point=kill@4 ;;
	esac
	restore=
	for run in 1 2 3 4 5; do
		code=0
		MILLSTREAM_FAILPOINTS=$points MILLSTREAM_FAILPOINTS_ONCE=$dir/once "$binary" --runner=distributed --workers=2 --parallelism=4 \
			--state-backend="${BACKEND:-rocksdb}" --state-cache=64KiB --checkpoint-dir="${CHECKPOINTS:-file://$work/checkpoints}/$point" --checkpoint-interval=500ms \
			--checkpoint-mode="${MODE:-aligned}" --max-rate="${RATE:-$((rows / 6))}" --input="$input" --output="$dir/out" $restore 2>>"$dir/log" || code=$?
		[ $code -ne 0 ] || break
		restore=--restore=latest
	done
	fired=$(find "$dir/once" -type f | wc -l)
	restored=$(grep -o 'restored=[0-9]*' "$dir/log" | cut -d= -f2 | sort -nu | tr '\n' ' ')
	if [ "$code" -ne 0 ] || [ "$fired" -lt "$kills" ] || { [ "$point" != mid-firing ] && [ "${restored#0 }" = "" ]; }; then
		echo "$point: exit code $code, $fired failpoints fired of $kills, restored: $restored" >&2
		tail -20 "$dir/log" >&2
		exit 1
	fi
	echo "$point: $fired killed, $run runs, restored checkpoints $restored: $("$work/check" "$input" "$dir/out")"
done
