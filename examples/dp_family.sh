#!/bin/sh
# Client-level privacy, the methods that DP-FedSAM compares itself to, side by side: the same noise, three seeds.
# Usage: examples/dp_family.sh [FOLDER] [ROUNDS]     (with fedsynth on the PATH: . .venv/bin/activate)
set -eu
FOLDER="${1:-runs/dp-family}"
ROUNDS="${2:-40}"

for recipe in dp-fedavg dp-fedavg-blur dp-fedavg-blurs fed-smp-randk fed-smp-moved dp-fedsam dp-fedsam-moved; do
    fedsynth run "$recipe" --rounds "$ROUNDS" --sweep seed=0,1,2 --quiet -o "$FOLDER/$recipe"
done
set --
for recipe in dp-fedavg dp-fedavg-blur dp-fedavg-blurs fed-smp-randk fed-smp-moved dp-fedsam dp-fedsam-moved; do
    for seed in 0 1 2; do
        set -- "$@" "$FOLDER/$recipe/seed=$seed" --name "$recipe,seed=$seed"
    done
done
fedsynth evaluate "$@" --picture "$FOLDER/comparison.png" --csv "$FOLDER/comparison.csv" --force \
    -o "$FOLDER/comparison.json"
fedsynth account "$FOLDER/dp-fedsam/seed=0/server/outbox/model-$(printf %04d "$ROUNDS").safetensors" --delta 0.002
