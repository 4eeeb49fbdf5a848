#!/usr/bin/env bash
# Train a language model on a free GPU with snug: the cells of colab.ipynb as one
# script. tools/notebook makes the notebook of it, a cell from each part that "# %%"
# begins; the tests run the script as it is. What can be set is set by the
# environment; the defaults are for Colab.
set -euo pipefail

# %% [md]
# # Train a language model on a free GPU with snug
#
# Works on Colab and Kaggle, with a GPU or (slowly) without one. *Run all* does
# everything; when the session is cut off, *Run all* again goes on where it stopped.
# Nothing here needs Python but mounting Drive and showing pictures.

# %% [md]
# ## 1. Somewhere that survives the session
#
# On Colab that is your Drive. Elsewhere the run stays in this folder; step 7 copies
# its checkpoints to a bucket.

# %% [python]
python3 - <<'PY'
try:
    from google.colab import drive
    drive.mount("/content/drive")
except ImportError:
    print("not on Colab: the run stays in this folder")
PY

# %% Settings that the other cells read
drive=/content/drive/MyDrive
cat > settings.sh <<END
PATH=$PWD/bin:$PATH
RUN=${RUN:-$([ -d $drive ] && echo $drive/snug/stories || echo runs/stories)}
PRESET=${PRESET:-colab}
TEXT=${TEXT:-hf://datasets/roneneldan/TinyStories/TinyStories-valid.txt}
FLAGS="${FLAGS:-}"
REMOTE=${REMOTE:-}
END
cat settings.sh

# %% [md]
# ## 2. snug
#
# One program: a released one, or built from source where there is none.

# %% Install
. ./settings.sh
release=${RELEASES:-https://github.com/snug-ml/snug/releases/latest/download}/snug-linux-amd64.tar.gz
if command -v snug; then
  echo "it is here already"
elif mkdir -p bin && curl -fsSL "$release" | tar -xz -C bin; then
  echo "unpacked $release"
else
  echo "no release: building it"
  git clone --depth 1 https://github.com/snug-ml/snug source
  curl -fsSL "https://go.dev/dl/go$(sed -n 's/^go //p' source/go.mod).linux-amd64.tar.gz" | tar -xz
  (cd source && ../go/bin/go build -o ../bin/snug .)
fi
snug --version

# %% [md]
# ## 3. The machine
#
# Which device it takes and why. On Colab: *Runtime, Change runtime type, T4 GPU*.

# %% Look
. ./settings.sh
snug doctor

# %% [md]
# ## 4. The plan
#
# Every byte of the run, before anything is allocated, and the time it should take.

# %% Plan
. ./settings.sh
snug plan $PRESET --data.source "$TEXT" $FLAGS

# %% [md]
# ## 5. Train
#
# The text is fetched once. `--resume` goes on with the run if it has begun, so the
# same cell starts it and continues it.

# %% Train
. ./settings.sh
snug train $PRESET --data.source "$TEXT" --out "$RUN" --resume $FLAGS

# %% [md]
# ## 6. Look at it

# %% Figures and text
. ./settings.sh
snug monitor "$RUN" --once
snug report "$RUN" --out pictures --pictures svg
snug generate "$RUN" --prompt "Once upon a time" --tokens 60

# %% [python]
python3 - <<'PY'
from pathlib import Path
pictures = sorted(Path("pictures").glob("**/*.svg"))
assert pictures, "the report has no pictures"
try:
    from IPython.display import SVG, display
except ImportError:  # the script, outside a notebook
    print(*pictures, sep="\n")
else:
    for p in pictures:
        display(SVG(filename=str(p)))
PY

# %% [md]
# ## 7. Keep it
#
# With Drive it is kept already. A bucket works from anywhere: set `REMOTE` to
# `s3://bucket/folder` or `gs://bucket/folder`, and the keys as `snug ckpt push --help`
# says.

# %% Copy the checkpoint to a bucket
. ./settings.sh
if [ -n "$REMOTE" ]; then
  snug ckpt push "$RUN" "$REMOTE"
else
  echo "no REMOTE is set; the run is in $RUN"
fi
