#!/usr/bin/env bash
# Three hospitals and a server, each in a folder of its own, over Flower with TLS and node keys, on this one machine.
# docs/federate.md tells the same story step by step. Needs openssl and ssh-keygen; takes a few minutes.
set -euo pipefail
work=${1:-runs/hospitals}
port=${PORT:-9092}
names="hospital-a hospital-b hospital-c"
rm -rf "$work" && mkdir -p "$work/letters" && cd "$work"
trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT

echo "== The hospitals' archives: here, scikit-learn's digits stand in for them."
fedsynth partition digits --clients 3 --scheme dirichlet --alpha 0.5 -o archives -q

echo "== The server: terms for everybody to read, a test set, a certificate, a key."
fedsynth federate app fedavg --rounds 3 --set receipts=true --set init-model.width=8 --signed \
  --clients "${names// /,}" -o federation
cp federation/fedsynth_app/federation.yaml letters/
mkdir server && cp letters/federation.yaml server/
fedsynth ingest archives/public/test.parquet -o server/public/test.parquet
fedsynth keygen -o server/server/private/server.key
fedsynth identity -o server/server/private/identity.json
openssl req -x509 -newkey rsa:3072 -nodes -days 365 -subj "/CN=three hospitals" -keyout ca.key -out letters/ca.pem 2>/dev/null
openssl req -newkey rsa:3072 -nodes -subj "/CN=localhost" -keyout server.key -out server.csr 2>/dev/null
openssl x509 -req -in server.csr -CA letters/ca.pem -CAkey ca.key -CAcreateserial -days 365 -out server.pem \
  -extfile <(echo "subjectAltName=DNS:localhost,IP:127.0.0.1") 2>/dev/null
cp server/server/private/identity.json letters/server.json

echo "== Each hospital: its own images under the common classes, a key, an identity, a node key."
number=0
for name in $names; do
  private=$name/clients/$name/private
  mkdir -p "$private" "$name/public"
  cp letters/federation.yaml "$name/"
  fedsynth ingest "archives/clients/0$number/private/data.parquet" --like server/public/test.parquet -o "$private/data.parquet" -q
  fedsynth keygen -o "$private/client.key" -q
  fedsynth identity -o "$private/identity.json" -q
  ssh-keygen -q -t ecdsa -b 384 -N "" -C "$name" -f "$private/node" && chmod go= "$private/node.pub"
  cp "$private/identity.json" "letters/$name.json" && cp "$private/node.pub" "letters/$name.pub"
  number=$((number + 1))
done

echo "== Together: the roster, from identities that were carried by hand."
fedsynth roster letters/hospital-?.json letters/server.json -o letters/roster.json
for name in server $names; do cp letters/roster.json "$name/public/"; done

echo "== Everybody starts."
fedsynth federate superlink --home server --certificate server.pem --key server.key --ca letters/ca.pem \
  --port "$port" -q > superlink.log 2>&1 &
link="--superlink 127.0.0.1:$port --root-certificates letters/ca.pem"
until curl -sf --cacert letters/ca.pem "https://127.0.0.1:$port/health" > /dev/null; do sleep 0.5; done
for name in $names; do
  fedsynth federate register "letters/$name.pub" --name "$name" $link -q
  fedsynth federate supernode --home "$name" --client "$name" --key "$name/clients/$name/private/node" $link \
    -q > "$name.log" 2>&1 &
done
fedsynth federate run federation --home server $link

echo "== The auditor: what left hospital-a, against what it was sent."
fedsynth audit hospital-a/clients/hospital-a --received hospital-a/server/outbox --received hospital-a/public
fedsynth verify server/clients/hospital-a/outbox/message-0001.safetensors --roster letters/roster.json
