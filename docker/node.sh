#!/bin/sh
# Runs the node of this container. The first start makes it: a node of its own site, or, if the
# file /data/invite is there, one that joins with that invitation.
#   NODE_NAME     its name (the host name)
#   NODE_ADDRESS  a name that others reach it by (its name)
set -eu
folder=/data/node
if [ ! -e "$folder/node.toml" ]; then
    name=${NODE_NAME:-$(hostname)}
    if [ -e /data/invite ]; then
        denwatch node --init "$folder" --join /data/invite --listen mqtts://0.0.0.0:8883
        rm /data/invite
    else
        denwatch node --init "$folder" --name "$name" --listen mqtts://0.0.0.0:8883 \
            --address "${NODE_ADDRESS:-$name}"
    fi
fi
exec denwatch node "$folder"
