#!/bin/bash
# A BERT from nothing, SimCSE's rate for it, and a small campaign from it, within LIMIT seconds; run again, it goes on.
# From the root of a checkout:
#   bench pretrain --profile benchmarks/from_nothing/bert6.toml --corpus general.txt.xz --split --prepare --out W/prepared
#   W=W BENCH_DATA=data OUT=out benchmarks/from_nothing/run.sh
# OUT gets, as it goes, the model in parts of 15 MB, the records and the logs. The loss after 500 steps decides whether a
# rate goes on.
set -uo pipefail
T0=$(date +%s); W=$(realpath "${W:?the folder that holds prepared/}"); : "${OUT:=$W/out}"; mkdir -p $OUT; OUT=$(realpath $OUT)
HERE=$(dirname "$(realpath "$0")"); DATA=$(realpath "${BENCH_DATA:?the evaluation data}")
DEVICE=${DEVICE:-cuda}; PREC=${PREC:-bf16}; LIMIT=${LIMIT:-590}
left() { echo $(( LIMIT - $(date +%s) + T0 )); }
[ -f $W/bert6.toml ] || cp $HERE/bert6.toml $W/
export PYTHONPATH=$PWD BENCH_DATA=$DATA PYTHONUNBUFFERED=1 TOKENIZERS_PARALLELISM=false OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1
B="python3 -m bench"; M=$W/bert-6x384; cd $W
weights() { [ -d $1 ] && tar cf - -C $W $(basename $1) | split -b 15M -d -a 1 - $OUT/model.tar.; }
pack() { (tar cf - -C $W --exclude=.stages --exclude=.locks --exclude=.vectors results 2>/dev/null | xz -T4 -3 > $W/r.xz; mv $W/r.xz $OUT/results.tar.xz; tar czf $OUT/logs.tar.gz -C $W $(cd $W; ls *.log run/*.toml *.toml)); }
say() { echo "== $(( $(date +%s) - T0 )) s: $*"; }
if [ ! -d $M ]; then
  say begin
  for lr in 7e-4:0.015 3e-4:0.02 5e-4:0.02; do
    GIVE=${GIVE_UP---give-up}; [ $lr = 5e-4:0.02 ] && GIVE=
    sed -i "/^\[pretrain\]/,/^\[budget\]/ { s/^lr = .*/lr = ${lr%:*}/; s/^warmup = .*/warmup = ${lr#*:}/ }" $W/bert6.toml
    min=$(python3 -c "print(max(1, min(${MINUTES:-7}, ($(left) - ${RESERVE:-140}) / 60)))")
    say "pretrain $lr for $min minutes"
    $B pretrain --profile $W/bert6.toml --prepared $W/prepared --minutes $min --device $DEVICE --precision $PREC $GIVE \
      --seed 1 --out $M 2>&1 | tee $W/pretrain-${lr%:*}.log | tr '\r' '\n' | grep -v '^pretrain' ; [ -d $M ] && break
  done
  [ -d $M ] || { weights $M-unfinished; pack; exit 1; }
  weights $M; cat $M/pretraining.json | tr -d '\n ' | cut -c1-3000; echo
fi
if [ ! -f $W/tuned ]; then
  say tune
  timeout $(left) $B tune simcse --profile $W/bert6.toml --backbone $M --values ${GRID:-3e-5,1e-4,3e-4} --seed 100 --device $DEVICE --workers 3 \
    --results $W/tuning > $W/tune.log 2>&1; cat $W/tune.log
  R=$(python3 -c "
import re,sys
d=re.findall(r'\[([\d.e-]+), (0\.\d+)\]', [l for l in open('$W/tune.log') if l.startswith('dev =')][-1])
print(max(d, key=lambda p: float(p[1]))[0])") && echo $R > $W/tuned
fi
R=$(cat $W/tuned 2>/dev/null || echo 1e-4); say "cells, lr $R"
mkdir -p $W/run; python3 - $R $W <<'P'
import re, sys
from pathlib import Path
rate, folder = float(sys.argv[1]), Path(sys.argv[2])
text = (folder / "bert6.toml").read_text()
head, methods = text[: text.index("[methods.simcse]")], text[text.index("[methods.simcse]") :]
for old, new in (("1e-4", rate), ("3e-5", 0.3 * rate), ("1e-5", 0.1 * rate)):
    methods = methods.replace(f"lr = {old}", f"lr = @{new:.3g}")
tuned = [l for l in (folder / "tune.log").read_text().splitlines()]
start = next((i for i, l in enumerate(tuned) if l.startswith("[[tuning]]")), None)
block = "" if start is None else "\n".join(tuned[start : start + 5]) + "\n"
methods = methods.replace("@", "").replace("\n[methods.tncse]", "\n" + block.replace(str(folder) + "/", "") + "\n[methods.tncse]", 1)
(folder / "run" / "bert6.toml").write_text(head + methods)
P
( while sleep 20; do pack; done ) & LOOP=$!
timeout $(( $(left) - 6 )) $B run --profile $W/run/bert6.toml --backbone $M --campaign bert6-h100 --methods ${METHODS:-untrained,untrained:avg,simcse,tncse,jtcse,esimcse,unsee_barlow} \
  --seeds ${SEEDS:-1-3} --device $DEVICE --workers ${WORKERS:-9} --results $W/results --probes all > $W/cells.log 2>&1; echo "rc $?" | tee -a $W/cells.log
tr '\r' '\n' < $W/cells.log | tail -n 40; kill $LOOP; wait $LOOP; sleep 1; pack; ls -l $OUT; say end
