"""Reads event files of package train/tensorboard with TensorBoard's own reader.

    python3 -m venv venv && venv/bin/pip install tensorboard
    venv/bin/python tools/tensorboard/read.py FOLDER      print every series of a folder
    venv/bin/python tools/tensorboard/read.py --fixture   check train/tensorboard/testdata
"""

import math
import os
import shutil
import sys
import tempfile

from tensorboard.backend.event_processing import event_accumulator


def read(folder):
    a = event_accumulator.EventAccumulator(folder, size_guidance={"scalars": 0, "tensors": 0})
    a.Reload()
    return {tag: [(e.step, e.value) for e in a.Scalars(tag)] for tag in a.Tags()["scalars"]}


def fixture():
    here = os.path.join(os.path.dirname(__file__), "..", "..", "train", "tensorboard", "testdata")
    with tempfile.TemporaryDirectory() as folder:
        for second, name in [(1, "first"), (2, "resumed")]:
            shutil.copy(os.path.join(here, "events.out.tfevents." + name), os.path.join(folder, "events.out.tfevents.%010d" % second))
        found = read(folder)
    # The session of five updates was resumed after the third, and did a fourth.
    loss = found["train/loss"]
    assert [step for step, _ in loss] == [1, 2, 3, 4], loss
    assert all(abs(value - 10 / step) < 1e-6 for step, value in loss), loss
    assert [step for step, _ in found["eval/eval_loss"]] == [4], found
    assert math.isnan(found["eval/größe"][0][1]), found
    print("ok")


if __name__ == "__main__":
    if sys.argv[1:] == ["--fixture"]:
        fixture()
    elif len(sys.argv) == 2:
        for tag, points in sorted(read(sys.argv[1]).items()):
            print(tag, *("%d:%.6g" % p for p in points))
    else:
        sys.exit(__doc__)
