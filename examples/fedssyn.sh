#!/bin/sh
# Fedssyn by hand: each client trains a generator, looks at what it draws, sends synthetic images once; the server
# shuffles and deals them out; the clients train on real and synthetic images together.
# Usage: examples/fedssyn.sh [RUN] [STEPS]     (with fedsynth on the PATH: . .venv/bin/activate)
set -eu
RUN="${1:-runs/fedssyn-by-hand}"
STEPS="${2:-300}"

fedsynth partition digits --clients 2 --scheme dirichlet --alpha 0.05 --held-out 0.1 -o "$RUN"
fedsynth init-model --arch convnet --width 16 --depth 2 --like "$RUN/public/test.parquet" \
    -o "$RUN/public/model-0000.safetensors"

for client in 00 01; do
    private="$RUN/clients/$client/private"
    # The generator never leaves: no outbox takes it.
    fedsynth train-generator "$private/data.parquet" --steps "$STEPS" -o "$private/generator.safetensors"
    # First into private/, with a contact sheet for the person who approves it.
    fedsynth synthesize "$private/generator.safetensors" --count 200 --sheet "$private/sheet.png" \
        -o "$private/drawn.parquet"
    # Does it repeat its training images? The answer is private, too.
    fedsynth evaluate "$private/drawn.parquet" "$private/data.parquet" --held-out "$private/held-out.parquet" \
        --pairs "$private/pairs.png" -o "$private/memorisation.json"
    # The same images again, into the outbox: two of them left out by their numbers on the sheet. The file and the
    # ledger say that it was picked over.
    fedsynth synthesize "$private/generator.safetensors" --count 200 --drop 3,17 \
        -o "$RUN/clients/$client/outbox/synthetic.parquet"
done

# At the server: mixed and dealt out, so that no row can be traced to a client.
fedsynth shuffle "$RUN"/clients/*/outbox/synthetic.parquet --parts 2 -o "$RUN/server/outbox"

model="$RUN/public/model-0000.safetensors"
for round in 0001 0002; do
    for client in 00 01; do
        place="$RUN/clients/$client"
        # As many steps as on the real data alone.
        fedsynth train-client "$model" "$place/private/data.parquet" "$RUN/server/outbox/synthetic-$client.parquet" \
            --epochs-of first --local-epochs 5 --batch-size 16 --learning-rate 0.05 \
            -o "$place/private/update-$round.safetensors"
        fedsynth encode "$model" "$place/private/update-$round.safetensors" \
            -o "$place/outbox/message-$round.safetensors"
    done
    fedsynth aggregate "$model" "$RUN"/clients/*/outbox/message-$round.safetensors \
        -o "$RUN/server/outbox/model-$round.safetensors"
    model="$RUN/server/outbox/model-$round.safetensors"
    fedsynth evaluate "$model" "$RUN/public/test.parquet" --curve "$RUN/metrics/curve.csv" \
        -o "$RUN/metrics/round-$round.json"
done

fedsynth inspect "$RUN/clients/00/outbox/synthetic.parquet"
fedsynth audit "$RUN"
