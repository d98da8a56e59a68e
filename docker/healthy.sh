#!/bin/sh
# Is a service well? The health checks of compose.yaml: exit status 0 if so. Starts no Python where
# something smaller will do, because it runs every few seconds.
#
# usage: healthy.sh broker             Mosquitto lets the probe in over TLS and answers
#        healthy.sh node NAME HOST     the node's status is at that server
#        healthy.sh watchdog           it has a connection to its node
#        healthy.sh page URL           a page is served, by somebody whom the site vouches for
set -eu
export XDG_CONFIG_HOME=/site/probe # mosquitto_sub's options: name, password, authority

case ${1:?what} in
broker) exec mosquitto_sub -h broker -p 8883 -t '$SYS/broker/version' -C 1 -W 5 >/dev/null ;;
node) exec mosquitto_sub -h "$3" -p 8883 -q 1 -t "dens/1/status/$2" -C 1 -W 5 >/dev/null ;;
watchdog) exec awk '$4 == "01" { found = 1 } END { exit !found }' /proc/net/tcp /proc/net/tcp6 ;;
page)
    export SSL_CERT_FILE=/site/probe/ca.pem
    exec python -c 'import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=5)' "$2"
    ;;
*)
    echo "healthy.sh: there is no check \"$1\"" >&2
    exit 2
    ;;
esac
