#!/bin/sh
# Methods that send synthetic sets against methods that send updates: digits, five clients with two classes each, three
# seeds. Then the same with differential privacy for each record, at one and the same ε.
# Usage: examples/surrogates.sh [FOLDER] [ROUNDS]     (with fedsynth on the PATH: . .venv/bin/activate)
set -eu
FOLDER="${1:-runs/surrogates}"
ROUNDS="${2:-6}"
SETTING="--set partition.scheme=classes --set partition.classes_per_client=2 --set init-model.width=32"
DP="--set train-client.privacy_rounds=5 --set train-client.local_steps=20"

for recipe in fedavg fedprox scaffold; do
    fedsynth run "$recipe" $SETTING --set partition.alpha=null --set train-client.learning_rate=0.03 \
        --rounds "$ROUNDS" --sweep seed=0,1,2 --quiet -o "$FOLDER/$recipe"
done
# And FedAvg with the step size of FedLAP, as that paper compares the two.
fedsynth run fedavg $SETTING --set train-client.learning_rate=0.1 --rounds "$ROUNDS" --sweep seed=0,1,2 --quiet \
    -o "$FOLDER/fedavg-0.1"
for recipe in fedlap fedlap-real feddm feddm-real real; do
    fedsynth run "$recipe" --rounds "$ROUNDS" --sweep seed=0,1,2 --quiet -o "$FOLDER/$recipe"
done
# ε = 8 for each of them: 100 looks at a quarter of the records, over five rounds.
fedsynth run dp-sgd $SETTING $DP --rounds 5 --sweep seed=0,1,2 --quiet -o "$FOLDER/dp-fedavg"
fedsynth run dp-sgd-fedprox $SETTING $DP --rounds 5 --sweep seed=0,1,2 --quiet -o "$FOLDER/dp-fedprox"
for recipe in fedlap-dp feddm-dp; do
    fedsynth run "$recipe" --rounds 5 --sweep seed=0,1,2 --quiet -o "$FOLDER/$recipe"
done

compare() { # NAME RECIPE…
    name="$1"
    shift
    runs=""
    for recipe; do
        for seed in 0 1 2; do
            runs="$runs $FOLDER/$recipe/seed=$seed --name $recipe,seed=$seed"
        done
    done
    # shellcheck disable=SC2086
    fedsynth evaluate $runs $DELTA --target 0.9 --against-bytes --picture "$FOLDER/$name.png" --csv "$FOLDER/$name.csv" --force \
        -o "$FOLDER/$name.json"
}
DELTA=""
compare comparison fedavg fedavg-0.1 fedprox scaffold fedlap fedlap-real feddm feddm-real real
DELTA="--delta 0.00001"
compare private dp-fedavg dp-fedprox fedlap-dp feddm-dp
