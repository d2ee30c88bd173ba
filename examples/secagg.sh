#!/bin/sh
# Secure aggregation by hand: three clients, one of whom drops after it sent its shares; the server sees the sum alone.
# Usage: examples/secagg.sh [RUN]     (with fedsynth on the PATH: . .venv/bin/activate)
set -eu
RUN="${1:-runs/secagg}"
MODEL="$RUN/public/model-0000.safetensors"
ROSTER="$RUN/public/roster.json"
DOWN="$RUN/server/outbox"

fedsynth partition digits --clients 3 -o "$RUN"
fedsynth init-model --arch softmax --like "$RUN/public/test.parquet" -o "$MODEL"
for client in 00 01 02; do
    place="$RUN/clients/$client"
    fedsynth train-client "$MODEL" "$place/private/data.parquet" -o "$place/private/update-0001.safetensors"
    # Once: who is who. In earnest these travel by a way that the server cannot bend.
    fedsynth identity -o "$place/private/identity.json"
done
fedsynth roster "$RUN"/clients/*/private/identity.json -o "$ROSTER"

# 0: fresh keys, signed; the server lists them, with the threshold and how numbers are written.
for client in 00 01 02; do
    fedsynth secagg keys --round 1 -o "$RUN/clients/$client/outbox/secagg-keys-0001.safetensors"
done
fedsynth secagg collect "$RUN"/clients/*/outbox/secagg-keys-0001.safetensors --roster "$ROSTER" --range 4 \
    -o "$DOWN/secagg-keys-0001.safetensors"

# 1: each client shares its two secrets among all, encrypted.
for client in 00 01 02; do
    fedsynth secagg shares "$DOWN/secagg-keys-0001.safetensors" --roster "$ROSTER" \
        -o "$RUN/clients/$client/outbox/secagg-shares-0001.safetensors"
done
fedsynth secagg collect "$RUN"/clients/*/outbox/secagg-shares-0001.safetensors --roster "$ROSTER" \
    --keys "$DOWN/secagg-keys-0001.safetensors" -o "$DOWN/secagg-shares-0001.safetensors"

# 2: the masked updates. Client 02 is gone.
for client in 00 01; do
    fedsynth secagg mask "$DOWN/secagg-shares-0001.safetensors" "$MODEL" \
        "$RUN/clients/$client/private/update-0001.safetensors" \
        -o "$RUN/clients/$client/outbox/secagg-masked-0001.safetensors"
done
fedsynth secagg collect "$RUN"/clients/*/outbox/secagg-masked-0001.safetensors --roster "$ROSTER" \
    --keys "$DOWN/secagg-keys-0001.safetensors" -o "$DOWN/secagg-survivors-0001.safetensors"

# 3: one survivor list, signed by those who are on it; then one kind of share for each of the three.
for client in 00 01; do
    fedsynth secagg confirm "$DOWN/secagg-survivors-0001.safetensors" \
        -o "$RUN/clients/$client/outbox/secagg-survivors-0001.safetensors"
done
fedsynth secagg collect "$RUN"/clients/*/outbox/secagg-survivors-0001.safetensors --roster "$ROSTER" \
    --keys "$DOWN/secagg-keys-0001.safetensors" -o "$DOWN/secagg-confirmed-0001.safetensors"
for client in 00 01; do
    fedsynth secagg unmask "$DOWN/secagg-confirmed-0001.safetensors" \
        -o "$RUN/clients/$client/outbox/secagg-unmask-0001.safetensors"
done

# The mean of the two updates, and the model after it.
fedsynth secagg sum "$RUN"/clients/*/outbox/secagg-masked-0001.safetensors \
    "$RUN"/clients/*/outbox/secagg-unmask-0001.safetensors --roster "$ROSTER" \
    --keys "$DOWN/secagg-keys-0001.safetensors" --shares "$DOWN/secagg-shares-0001.safetensors" \
    --survivors "$DOWN/secagg-confirmed-0001.safetensors" -o "$RUN/server/private/update-0001.safetensors"
fedsynth aggregate "$MODEL" "$RUN/server/private/update-0001.safetensors" -o "$DOWN/model-0001.safetensors"
fedsynth evaluate "$DOWN/model-0001.safetensors" "$RUN/public/test.parquet" -o "$RUN/metrics/round-0001.json"
fedsynth inspect "$RUN/clients/00/outbox/secagg-masked-0001.safetensors"
fedsynth audit "$RUN"
