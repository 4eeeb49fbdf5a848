"""Writes engine/cuda/ptxsim/testdata/fragments.json: where each element of an mma's matrices lies, by tinygrad's tables.

    python tools/fragment-goldens/fragments.py engine/cuda/ptxsim/testdata/fragments.json

needs tinygrad 0.14.0. Its Python device has the mapping as nested functions; they are taken out of the installed source
and asked for every element. An entry is [element of the lane's fragment, lane], row by row.
"""
import json, re, sys, textwrap
from importlib.metadata import version
from importlib.util import find_spec

ROWS, COLS = 16, 8
source = open(find_spec("tinygrad").submodule_search_locations[0] + "/runtime/ops_python.py").read()
device = source[source.index('device == "CUDA"'):]


def function(name, text):
    body = re.search(rf"^ *def {name}\(.*\): return .*$", text, re.M).group(0)
    scope = {}
    exec(textwrap.dedent(body), scope)
    return scope[name]


class Probe:
    """Indexed by element, then by lane, it gives both back."""
    def __init__(self, element=None): self.element = element
    def __getitem__(self, i): return [self.element, i] if self.element is not None else Probe(i)


shapes = {"m16n8k16": ("dims == (8,16,16)", 16), "m16n8k8": ("dims == (8,16,8) and dtype_in == dtypes.half", 8),
          "m16n8k8.tf32": ("dims == (8,16,8) and dtype_in == dtypes.float", 8)}
c_map = function("c_map", device)
where = {tuple(reversed(c_map(lane, e))): [e, lane] for lane in range(32) for e in range(4)}
out = {"source": f"tinygrad {version('tinygrad')}, tinygrad/runtime/ops_python.py", "shapes": {}}
for name, (mark, k) in shapes.items():
    part = device[device.index(mark):]
    a, b = function("a_elem", part), function("b_elem", part)
    out["shapes"][name] = {
        "k": k,
        "a": [[a(Probe(), x, row, 0) for x in range(k)] for row in range(ROWS)],
        "b": [[b(Probe(), col, x, 0) for col in range(COLS)] for x in range(k)],
        "c": [[where[row, col] for col in range(COLS)] for row in range(ROWS)],
    }
with open(sys.argv[1], "w") as f:
    f.write(json.dumps(out, separators=(",", ":")).replace('"shapes"', '\n"shapes"').replace('"m16', '\n"m16').replace("]],", "]],\n") + "\n")
