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
run=runs/stories
[ ! -d $drive ] || run=$drive/snug/stories
# %q quotes what has spaces, such as the name of a folder.
{
  printf 'PATH=%q:$PATH\n' "$PWD/bin"
  printf 'RUN=%q\n' "${RUN:-$run}"
  printf 'PRESET=%q\n' "${PRESET:-colab}"
  printf 'TEXT=%q\n' "${TEXT:-hf://datasets/roneneldan/TinyStories/TinyStories-valid.txt}"
  printf 'FLAGS=%q\n' "${FLAGS:-}"
  printf 'REMOTE=%q\n' "${REMOTE:-}"
} > settings.part
mv settings.part settings.sh
cat settings.sh

# %% [md]
# ## 2. snug
#
# One program: a released one, or built from source where there is none. It gets its
# name once it is whole, so the cell can be run again wherever it was cut off.

# %% Install
. ./settings.sh
releases=${RELEASES:-https://github.com/snug-ml/snug/releases/latest/download}
arch=$(uname -m | sed 's/x86_64/amd64/; s/aarch64/arm64/')
archive=snug-linux-$arch.tar.gz
rm -rf install.part
mkdir -p bin install.part
if command -v snug; then
  echo "it is here already"
elif curl -fsSL -o "install.part/$archive" "$releases/$archive"; then
  curl -fsSL -o install.part/SHA256SUMS "$releases/SHA256SUMS"
  (cd install.part && grep "  $archive\$" SHA256SUMS > sum && sha256sum --check sum && tar -xzf "$archive")
  mv install.part/snug bin/snug
  echo "installed $releases/$archive"
elif [ $? = 22 ]; then # curl's answer where the server has no such file
  echo "no release: building it"
  git clone --depth 1 https://github.com/snug-ml/snug install.part/source
  curl -fsSL "https://go.dev/dl/go$(sed -n 's/^go //p' install.part/source/go.mod).linux-$arch.tar.gz" | tar -xz -C install.part
  (cd install.part/source && ../go/bin/go build -o ../snug .)
  mv install.part/snug bin/snug
else
  echo "$releases/$archive was not fetched: run this cell again" >&2
  exit 1
fi
rm -rf install.part
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
rm -rf pictures # of an earlier look
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
