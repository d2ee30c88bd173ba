#!/bin/sh
# FedDM by hand: synthetic images whose features are those of the data. Two clients, one round; the server trains on
# the images of both. Then the same with noise.
# Usage: examples/feddm.sh [RUN]     (with fedsynth on the PATH: . .venv/bin/activate)
set -eu
RUN="${1:-runs/feddm-by-hand}"

fedsynth partition digits --clients 2 --scheme classes --classes-per-client 5 -o "$RUN"
fedsynth init-model --arch convnet --width 16 --depth 2 --like "$RUN/public/test.parquet" \
    -o "$RUN/public/model-0000.safetensors"
model="$RUN/public/model-0000.safetensors"

for client in 00 01; do
    place="$RUN/clients/$client"
    fedsynth encode "$model" "$place/private/data.parquet" --method feddm --images-per-class 5 --iterations 60 --rho 1 \
        -o "$place/outbox/surrogate-0001.safetensors"
done
fedsynth aggregate "$model" "$RUN"/clients/*/outbox/surrogate-0001.safetensors --rule feddm --rho 1 \
    --server-epochs 300 --images-per-class 5 -o "$RUN/server/outbox/model-0001.safetensors"
model="$RUN/server/outbox/model-0001.safetensors"
fedsynth evaluate "$model" "$RUN/public/test.parquet" -o "$RUN/metrics/round-0001.json"
fedsynth inspect "$RUN/clients/00/outbox/surrogate-0001.safetensors"

# With differential privacy for each record: ten looks at the data, each noised over all classes at once.
for client in 00 01; do
    place="$RUN/clients/$client"
    fedsynth encode "$model" "$place/private/data.parquet" --method feddm --images-per-class 5 --iterations 10 --rho 1 \
        --steps-per-look 10 --target-epsilon 4 --delta 1e-5 --sampling-rate 0.1 --clip-norm 5 \
        -o "$place/outbox/surrogate-0002.safetensors"
done
fedsynth aggregate "$model" "$RUN"/clients/*/outbox/surrogate-0002.safetensors --rule feddm --rho 1 \
    --server-epochs 300 -o "$RUN/server/outbox/model-0002.safetensors"
fedsynth evaluate "$RUN/server/outbox/model-0002.safetensors" "$RUN/public/test.parquet" -o "$RUN/metrics/round-0002.json"
fedsynth account "$RUN/clients/00/outbox/surrogate-0002.safetensors" --delta 1e-5
fedsynth audit "$RUN"
