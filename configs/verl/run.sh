#!/usr/bin/env bash
# Trains with verl on a Kernevo dataset: starts `kernevo serve`, waits for it, trains, stops it.
#
#   KERNEVO_DATASET=DIR MODEL=DIR [SERVE_ARGUMENTS="--evaluator gpu"] [SERVE_GPU=1] configs/verl/run.sh [KEY=VALUE]...
#
# KERNEVO_SERVE_URL names a server that runs already; then none is started.
set -euo pipefail

: "${KERNEVO_DATASET:?the folder that kernevo export --format verl wrote}"
: "${MODEL:?folder or name of the model to train}"
here=$(cd "$(dirname "$0")" && pwd)
port=${SERVE_PORT:-8000}

if [ -z "${KERNEVO_SERVE_URL:-}" ]; then
  export KERNEVO_SERVE_URL=http://127.0.0.1:$port
  export KERNEVO_SERVE_TOKEN=${KERNEVO_SERVE_TOKEN:-$(python -c 'import secrets; print(secrets.token_urlsafe())')}
  # shellcheck disable=SC2086  # several arguments in one variable
  env ${SERVE_GPU:+CUDA_VISIBLE_DEVICES="$SERVE_GPU"} kernevo serve --port "$port" ${SERVE_ARGUMENTS:-} &
  server=$!
  trap 'kill "$server" 2>/dev/null; wait "$server" || true' EXIT
  until python -c "import sys, urllib.request; urllib.request.urlopen('$KERNEVO_SERVE_URL/health')" 2>/dev/null; do
    kill -0 "$server" || exit 1
    sleep 1
  done
fi

python -m verl.trainer.main_ppo --config-path "$here" --config-name kernevo_grpo \
  actor_rollout_ref.model.path="$MODEL" "$@"
