#!/bin/sh
# Record-level privacy by hand: a budget, DP-SGD, a refusal, and what left in ε. One client, real handwritten digits.
# Usage: examples/private_records.sh [RUN]     (with fedsynth on the PATH: . .venv/bin/activate)
set -eu
RUN="${1:-runs/private-records}"

fedsynth partition digits --clients 1 -o "$RUN"
fedsynth init-model --arch convnet --width 16 --depth 2 --like "$RUN/public/test.parquet" \
    -o "$RUN/public/model-0000.safetensors"

place="$RUN/clients/00"
# The most that the client is ready to spend, in all.
printf 'epsilon: 3\ndelta: 1e-5\nunit: record\n' > "$place/private/budget.yaml"

# Sampling rate, divisor (--batch-size) and steps are public constants; the noise follows from the target.
train() {
    fedsynth train-client "$1" "$place/private/data.parquet" --target-epsilon "$2" --delta 1e-5 --sampling-rate 0.1 \
        --batch-size 144 --local-steps 40 --learning-rate 0.5 -o "$place/private/update-$3.safetensors"
}
train "$RUN/public/model-0000.safetensors" 2 0001
fedsynth encode "$RUN/public/model-0000.safetensors" "$place/private/update-0001.safetensors" \
    -o "$place/outbox/message-0001.safetensors"
fedsynth aggregate "$RUN/public/model-0000.safetensors" "$place/outbox/message-0001.safetensors" \
    -o "$RUN/server/outbox/model-0001.safetensors"
fedsynth evaluate "$RUN/server/outbox/model-0001.safetensors" "$RUN/public/test.parquet" \
    -o "$RUN/metrics/round-0001.json"

# The second round would go beyond the budget: refused with exit code 4, before a record is read.
code=0
train "$RUN/server/outbox/model-0001.safetensors" 2 0002 || code=$?
echo "exit code $code"

fedsynth inspect "$place/outbox/message-0001.safetensors"
fedsynth account "$RUN" --delta 1e-5
fedsynth audit "$RUN"
