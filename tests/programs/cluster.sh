#!/bin/bash
# A chief and two workers, each a process of its own, on three ports of this machine.
# usage: cluster.sh PYTHON FOLDER PORT PORT PORT
set -u
python=$1 folder=$2
cluster="{\"chief\": [\"127.0.0.1:$3\"], \"worker\": [\"127.0.0.1:$4\", \"127.0.0.1:$5\"]}"
program=$(dirname "$0")/cluster.py
task() { TF_CONFIG="{\"cluster\": $cluster, \"task\": {\"type\": \"$1\", \"index\": $2}}" "$python" "$program" "$folder"; }
task worker 0 &
first=$!
task worker 1 &
second=$!
task chief 0
status=$?
wait $first && wait $second && exit $status
