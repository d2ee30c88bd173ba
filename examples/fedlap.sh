#!/bin/sh
# FedLAP by hand: clients send a few synthetic images in place of an update. Two clients with one half of the digits
# each, two rounds; then one round with noise.
# Usage: examples/fedlap.sh [RUN]     (with fedsynth on the PATH: . .venv/bin/activate)
set -eu
RUN="${1:-runs/fedlap-by-hand}"

fedsynth partition digits --clients 2 --scheme classes --classes-per-client 5 -o "$RUN"
fedsynth init-model --arch convnet --width 16 --depth 2 --like "$RUN/public/test.parquet" \
    -o "$RUN/public/model-0000.safetensors"

model="$RUN/public/model-0000.safetensors"
for round in 0001 0002; do
    for client in 00 01; do
        place="$RUN/clients/$client"
        # Inside the client: images whose gradients are those of its data, and how far from the model that holds.
        fedsynth encode "$model" "$place/private/data.parquet" --method fedlap --images-per-class 5 \
            --batch-size 1024 --batches 3 --image-rate 1 --metrics "$place/private/matching-$round.json" \
            -o "$place/outbox/surrogate-$round.safetensors"
    done
    # At the server: gradient descent on the images of all clients, no farther than the smallest radius.
    fedsynth aggregate "$model" "$RUN"/clients/*/outbox/surrogate-$round.safetensors --rule fedlap \
        --images-per-class 5 -o "$RUN/server/outbox/model-$round.safetensors"
    model="$RUN/server/outbox/model-$round.safetensors"
    fedsynth evaluate "$model" "$RUN/public/test.parquet" --curve "$RUN/metrics/curve.csv" \
        -o "$RUN/metrics/round-$round.json"
done
fedsynth inspect "$RUN/clients/00/outbox/surrogate-0001.safetensors"

# The same with differential privacy for each record. All classes get images, whatever the client has; no radius is
# measured. Sampling rate, divisor and number of looks at the data are public constants, charged before data is read.
for client in 00 01; do
    place="$RUN/clients/$client"
    fedsynth encode "$model" "$place/private/data.parquet" --method fedlap --images-per-class 5 \
        --target-epsilon 4 --delta 1e-5 --sampling-rate 0.1 --batch-size 72 --points 2 --batches 4 --model-steps 2 \
        --distance mse --image-rate 5 --radius 1.5 -o "$place/outbox/surrogate-0003.safetensors"
done
fedsynth aggregate "$model" "$RUN"/clients/*/outbox/surrogate-0003.safetensors --rule fedlap --radius 1.5 \
    -o "$RUN/server/outbox/model-0003.safetensors"
fedsynth account "$RUN/clients/00/outbox/surrogate-0003.safetensors" --delta 1e-5
fedsynth audit "$RUN"
