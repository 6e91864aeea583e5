#!/bin/sh
# The main job on a machine without a GPU, a model or a network: evolve softmax, then say where things are.
# Every run gets a folder of its own, so running it twice overwrites nothing.
set -eu
name=quickstart
number=2
while [ -e "$RUNS/$name" ]; do
  name=quickstart-$number
  number=$((number + 1))
done
"$BIN/kernevo" run configs/quickstart.yaml --name "$name" --set runs_dir="$RUNS"
elite=$(ls "$RUNS/$name"/elites/*_1_*.py | head -n 1)
echo
echo "elite:  $elite"
echo "report: $RUNS/$name/report.html"
echo
echo "next:"
echo "  $BIN/kernevo harvest $RUNS/$name --top 1 --out harvested/$name"
echo "  $BIN/kernevo verify harvested/$name"
