#!/bin/sh
# What an attacker sees (TOFU, Fig. 2): Inverting Gradients on a raw update, and on proxies that stand for it with more
# or less of its direction. Digits, three seeds. About 20 minutes on one core; half of it is LeNet-5.
# Usage: examples/tofu_attack.sh [FOLDER] [SEED…]     (with fedsynth on the PATH: . .venv/bin/activate)
set -eu
FOLDER="${1:-runs/tofu-attack}"
[ "$#" -eq 0 ] || shift
[ "$#" -gt 0 ] || set -- 0 1 2

begin() { # RUN CLIENTS TEST_FRACTION NET SEED TRAINING…: a client, its update, and the message that carries it raw
    RUN="$1" && PLACE="$1/clients/00" && MODEL="$1/public/model-0000.safetensors"
    fedsynth partition digits --clients "$2" --test-fraction "$3" --seed "$5" --quiet -o "$RUN"
    # shellcheck disable=SC2086
    fedsynth init-model --arch $4 --like "$RUN/public/test.parquet" --seed "$5" --quiet -o "$MODEL"
    seed="$5"
    shift 5
    fedsynth train-client "$MODEL" "$PLACE/private/data.parquet" "$@" --seed "$seed" --quiet \
        -o "$PLACE/private/update-0001.safetensors"
    fedsynth encode "$MODEL" "$PLACE/private/update-0001.safetensors" --quiet -o "$PLACE/outbox/message.safetensors"
}
proxy() { # NAME ENCODING…
    name="$1"
    shift
    fedsynth encode "$MODEL" "$PLACE/private/update-0001.safetensors" --method tofu --solver paper "$@" --quiet \
        -o "$PLACE/outbox/proxy-$name.safetensors"
}
attack() { # OPTIONS…
    fedsynth evaluate "$MODEL" "$PLACE/outbox/message.safetensors" "$PLACE"/outbox/proxy-*.safetensors \
        --attack inverting-gradients --against "$PLACE/private/data.parquet" --held-out "$RUN/public/test.parquet" \
        "$@" --seed "$seed" --picture "$PLACE/private/attack.png" -o "$PLACE/private/attack.json"
}

for seed; do
    echo "A hidden layer of 64 units, one step on four images, labels known to the attacker; seed $seed."
    begin "$FOLDER/mlp-$seed" 1 0.9978 mlp "$seed" --algorithm fedsgd --learning-rate 0.1
    proxy 1 --images 16
    proxy 2 --images 64 --target-cosine 0.95
    proxy 3 --images 64 --target-cosine 0.9
    proxy 4 --images 64 --target-cosine 0.8
    attack --labels known

    echo "LeNet-5, one step on four images, labels known to the attacker; seed $seed."
    begin "$FOLDER/lenet5-$seed" 1 0.9978 lenet5 "$seed" --algorithm fedsgd --learning-rate 0.1
    proxy 1 --images 16 --iterations 500
    proxy 2 --images 64 --target-cosine 0.95
    attack --labels known --total-variation 1e-4

    echo "The hidden layer again, an epoch over 287 images in batches of 32; seed $seed."
    begin "$FOLDER/epoch-$seed" 5 0.2 mlp "$seed" --local-epochs 1 --batch-size 32 --learning-rate 0.1
    proxy 1 --images 64
    attack --images 8
done
