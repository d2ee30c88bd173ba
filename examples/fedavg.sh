#!/bin/sh
# FedAvg by hand: every stage typed out, every message a file. Two clients, two rounds, real handwritten digits.
# Usage: examples/fedavg.sh [RUN]     (with fedsynth on the PATH: . .venv/bin/activate)
set -eu
RUN="${1:-runs/fedavg-by-hand}"

# A simulation needs someone to deal out data; real clients bring their own, and their own keys (fedsynth keygen).
fedsynth partition digits --clients 2 --scheme dirichlet --alpha 0.5 -o "$RUN"
fedsynth init-model --arch convnet --width 16 --depth 2 --like "$RUN/public/test.parquet" \
    -o "$RUN/public/model-0000.safetensors"

model="$RUN/public/model-0000.safetensors"
for round in 0001 0002; do
    for client in 00 01; do
        place="$RUN/clients/$client"
        # Inside the client: train on private data. The update stays in private/.
        fedsynth train-client "$model" "$place/private/data.parquet" --local-epochs 5 --batch-size 16 \
            -o "$place/private/update-$round.safetensors"
        # The one file that leaves, entered in the client's ledger before it appears in the outbox.
        fedsynth encode "$model" "$place/private/update-$round.safetensors" \
            -o "$place/outbox/message-$round.safetensors"
    done
    # At the server: average, send the next model down.
    fedsynth aggregate "$model" "$RUN"/clients/*/outbox/message-$round.safetensors \
        -o "$RUN/server/outbox/model-$round.safetensors"
    model="$RUN/server/outbox/model-$round.safetensors"
    fedsynth evaluate "$model" "$RUN/public/test.parquet" --curve "$RUN/metrics/curve.csv" \
        -o "$RUN/metrics/round-$round.json"
done

# What left, exactly.
fedsynth inspect "$RUN/clients/00/outbox/message-0001.safetensors"
fedsynth audit "$RUN"
