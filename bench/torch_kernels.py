#!/usr/bin/env python3
"""Single operations in PyTorch, under the names that `card kernels` gives them: one JSON object each.

    torch_kernels.py [--dtype bf16] [--runs 20]

An operation is timed by itself between two events of the card, the median of its runs.
"""

import argparse
import statistics
import time

import torch_measure


def kernels(torch, dtype, name, device, small):
    """(name, function) of each operation."""
    F, scale = torch.nn.functional, 16 if small else 1

    def normal(*shape, dtype=dtype):
        return torch.randn(*shape, device=device).to(dtype)

    def matmul(m, n, k, layout, dtype=dtype, name=name):
        m, n, k = m // scale, n // scale, k // scale
        a = normal(k, m, dtype=dtype).t() if layout[0] == "t" else normal(m, k, dtype=dtype)
        w = normal(n, k, dtype=dtype).t() if layout[1] == "t" else normal(k, n, dtype=dtype)
        return f"matmul {m}x{n}x{k} {layout} {name}", lambda: a @ w

    def attention(batch, steps, heads, size, causal):
        batch, steps = max(1, batch // scale), steps // scale
        q, k, v = normal(3, batch, steps, heads, size).transpose(2, 3)
        kind = "causal" if causal else "full"
        return (f"attention {batch}x{steps}, {heads} heads of {size}, {kind} {name}",
                lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=1 / size))

    for n in (512, 1024, 2048, 4096, 8192):
        yield matmul(n, n, n, "nt")
    yield matmul(4096, 4096, 4096, "nn")
    yield matmul(4096, 4096, 4096, "tn")
    yield matmul(8192, 2304, 768, "nt")
    yield matmul(8192, 3072, 768, "nt")
    yield matmul(8192, 768, 3072, "nt")
    yield matmul(768, 3072, 8192, "tn")
    yield matmul(4096, 4096, 4096, "nt", torch.float32, "f32")
    yield attention(8, 1024, 12, 64, True)
    yield attention(4, 1024, 12, 128, True)
    yield attention(32, 192, 12, 64, False)
    rows, width, vocab = 8192 // scale, 768, 50257 // scale
    x, wide = normal(rows, width), normal(rows, 4 * width)
    gamma, beta = normal(width), normal(width)
    yield f"layer norm {rows}x{width} {name}", lambda: F.layer_norm(x, (width,), gamma, beta)
    yield f"gelu {rows}x{4 * width} {name}", lambda: F.gelu(wide)
    table, labels = normal(vocab, width), torch.randint(vocab, (rows,), device=device)
    yield f"loss {rows}x{width}x{vocab} {name}", lambda: F.cross_entropy((x @ table.t()).float(), labels)


def seconds(torch, device, f, runs):
    """The median time of f after five runs that are not measured."""
    times = []
    for i in range(5 + runs):
        if device == "cuda":
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            f()
            end.record()
            end.synchronize()
            t = begin.elapsed_time(end) / 1e3
        else:
            t = time.perf_counter()
            f()
            t = time.perf_counter() - t
        if i >= 5:
            times.append(t)
    return statistics.median(times)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    p.add_argument("--dtype", choices=("bf16", "fp16", "fp32"), default="bf16")
    p.add_argument("--runs", type=int, default=20)
    p.add_argument("--small", action="store_true", help="small shapes, to try the program")
    args = p.parse_args()
    import torch

    torch.set_float32_matmul_precision("high")  # TF32, where the card has it
    dtype, name = {"bf16": (torch.bfloat16, "bf16"), "fp16": (torch.float16, "f16"), "fp32": (torch.float32, "f32")}[args.dtype]
    with torch.no_grad():
        for label, f in kernels(torch, dtype, name, args.device, args.small):
            torch_measure.say({"kernel": label, "torch_seconds": seconds(torch, args.device, f, args.runs)})


if __name__ == "__main__":
    main()
