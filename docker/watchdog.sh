#!/bin/sh
# A watchdog on unix MicroPython, and the sensors that it reads. usage: watchdog.sh FOLDER
# The readings begin anew at each start; what the watchdog could not send stays in its spool.
set -eu
folder=${1:?folder}
here=$(dirname "$0")

python "$here/sensors.py" "$folder/watchdog.json" &
sensors=$!
until [ -s /tmp/readings.csv ]; do sleep 0.1; done
denwatch watchdog --report 60 --micropython "$here/../.cache/runtimes/unix64/micropython" \
    "$folder/watchdog.json" &
watchdog=$!

trap 'kill "$watchdog" "$sensors" 2>/dev/null || :' TERM INT
status=0
wait "$watchdog" || status=$?
kill "$sensors" 2>/dev/null || :
exit "$status"
