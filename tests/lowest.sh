#!/bin/sh
# What has to work with the oldest versions that pyproject.toml allows: sh tests/lowest.sh BIN (make lowest)
set -eu
bin=$1
checkout=$(pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
"$bin/bench" run --methods jtcse,tncse --seeds 1-2 --workers 2
"$bin/bench" export untrained --out model
"$bin/bench" run --methods st:model
"$bin/bench" verify results
"$bin/bench" compare tncse jtcse
for format in text markdown csv json latex html; do
    "$bin/bench" report --format "$format" >"report.$format"
done
"$bin/bench" verify "$checkout/results/mini"
cd "$checkout"
OMP_NUM_THREADS=1 "$bin/python" -m pytest -n auto --maxprocesses 8 -m "not long and not minutes" tests/records tests/stats tests/reports
