#!/usr/bin/env python3
"""One PyTorch training process on one of the four workloads of bench/README.md.

    torch_train.py {a,b,c,d} [--mode default|tuned|bf16] [--threads 2] [--steps N]

Prints one JSON object: median and best milliseconds of a training step (forward, backward, global-norm clip, AdamW),
peak resident memory, and what the process ran on. The process starts itself again in an empty environment, so that
nothing preset by the shell (OPENBLAS_CORETYPE, MKL_*, OMP_*) slows it down.

Modes: `default` is PyTorch as it comes, attention written out. `tuned` adds the libraries of setup.sh (tcmalloc, because
glibc's allocator returns large blocks to the kernel and pays for them in page faults again; on AMD one that makes MKL
use AVX-512), scaled_dot_product_attention and the fused AdamW. `bf16` is `tuned` under autocast to bfloat16.
"""

import argparse
import glob
import math
import os
import statistics
import sys
import time

import torch_measure

WARMUP = 3
MIB = 1 << 20

# d model width, L layers, H heads, F feed-forward, T length, B batch, V vocabulary, n measured steps.
WORKLOADS = {
    "a": dict(kind="gpt", V=8192, d=384, L=6, H=6, F=1536, T=256, B=4, n=15),
    "b": dict(kind="gpt", V=8192, d=512, L=8, H=8, F=2048, T=512, B=8, n=6),
    "c": dict(kind="encoder", V=8192, d=384, L=6, H=12, F=1536, T=192, B=16, n=10, classes=2),
    "d": dict(kind="video", d=256, L=4, H=4, F=1024, T=5, B=20, n=30, classes=10, side=64),
    "gpt2": dict(kind="gpt", V=50257, d=768, L=12, H=12, F=3072, T=1024, B=8, n=20),
}


def options():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("workload", choices=sorted(WORKLOADS))
    p.add_argument("--mode", choices=("default", "tuned", "bf16", "fp16"), default="tuned")
    p.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--steps", type=int, default=0, help="measured steps (default: by workload)")
    p.add_argument("--attention", choices=("sdpa", "written-out"), help="override the mode's attention")
    p.add_argument("--isa", choices=("avx2",), help="hold PyTorch, oneDNN and MKL to the instructions of an older processor")
    p.add_argument("--compile", nargs="?", const="default", metavar="MODE", help="torch.compile the model (max-autotune, ...)")
    p.add_argument("--checkpoint", action="store_true", help="recompute every block in the backward pass")
    p.add_argument("--profile", action="store_true", help="print the profiler's table of three more steps to stderr")
    return p.parse_args()


def preloads():
    """Libraries that make PyTorch faster when loaded before it: those setup.sh made, else the system's tcmalloc."""
    made = sorted(glob.glob(os.path.join(sys.prefix, "lib", "preload", "*.so*")))
    if not any("tcmalloc" in path for path in made):
        system = glob.glob("/usr/lib*/libtcmalloc_minimal.so.4") + glob.glob("/usr/lib/*/libtcmalloc_minimal.so.4")
        if not system:
            print("torch_train.py: no tcmalloc found; glibc's allocator slows PyTorch down (see bench/setup.sh)", file=sys.stderr)
        made += system[:1]
    return made


def restart_clean(args):
    """Replaces this process by itself in a minimal environment, once."""
    if os.environ.get("SNUG_BENCH_CLEAN") == "1":
        return
    env = {"SNUG_BENCH_CLEAN": "1", "PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": os.environ.get("HOME", "/"),
           "OMP_NUM_THREADS": str(args.threads)}
    if args.isa:  # ATen's own kernels, oneDNN's and MKL's each have a name for it
        env.update({"ATEN_CPU_CAPABILITY": args.isa, "ONEDNN_MAX_CPU_ISA": args.isa.upper(), "MKL_ENABLE_INSTRUCTIONS": args.isa.upper()})
    if args.device == "cuda":
        env.update({k: v for k, v in os.environ.items() if k == "LD_LIBRARY_PATH" or k.startswith(("CUDA_", "NVIDIA_", "TORCHINDUCTOR_"))})
    elif args.mode != "default":
        env["LD_PRELOAD"] = ":".join(preloads())
    os.execve(sys.executable, [sys.executable, *sys.argv], env)


def busy_seconds():
    """CPU seconds that all processes (and the hypervisor) have taken from this machine since it started."""
    with open("/proc/stat", encoding="ascii") as stat:
        v = [int(x) for x in stat.readline().split()[1:9]]
    return (v[0] + v[1] + v[2] + v[5] + v[6] + v[7]) / os.sysconf("SC_CLK_TCK")


def forward_flops(w):
    """Matrix-product FLOPs of the transformer's forward pass; attention counted in full, not halved for causality."""
    tokens = w["B"] * w["T"]
    d, head = w["d"], w["d"] * w["V"] if w["kind"] == "gpt" else 0
    return 2 * tokens * (w["L"] * (4 * d * d + 2 * d * w["F"]) + head) + 4 * w["T"] * d * w["L"] * tokens


def step_flops(w):
    total = 3 * forward_flops(w)
    if w["kind"] == "video":
        images, side, channels = w["B"] * w["T"], w["side"], (1, 64, 128, 256)
        for i in range(3):
            side //= 2
            passes = 2 if i == 0 else 3  # the pictures need no gradient
            total += passes * 2 * images * side * side * 9 * channels[i] * channels[i + 1]
        total += 3 * 2 * images * w["d"] * w["d"]
    return total


def written_out(args):
    """Whether attention is written out as two products and a softmax, rather than one fused call."""
    return (args.attention or ("written-out" if args.mode == "default" else "sdpa")) == "written-out"


def build(torch, w, args):
    """The model and one fixed batch of random data."""
    nn, F = torch.nn, torch.nn.functional
    class Block(nn.Module):
        def __init__(self, causal):
            super().__init__()
            d = w["d"]
            self.causal = causal
            self.norm_a, self.norm_f = nn.LayerNorm(d), nn.LayerNorm(d)
            self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
            self.up, self.down = nn.Linear(d, w["F"]), nn.Linear(w["F"], d)
            if causal and written_out(args):
                mask = torch.full((w["T"], w["T"]), -math.inf).triu(1)
                self.register_buffer("mask", mask, persistent=False)

        def attention(self, x):
            B, T, d = x.shape
            q, k, v = self.qkv(x).view(B, T, 3, w["H"], d // w["H"]).permute(2, 0, 3, 1, 4)
            if written_out(args):
                scores = q @ k.transpose(-1, -2) * (d // w["H"]) ** -0.5
                if self.causal:
                    scores = scores + self.mask
                y = scores.softmax(-1) @ v
            else:
                y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
            return self.out(y.transpose(1, 2).reshape(B, T, d))

        def forward(self, x):
            x = x + self.attention(self.norm_a(x))
            return x + self.down(F.gelu(self.up(self.norm_f(x))))

    class Trunk(nn.Module):
        """Embedding or convolutions, blocks, final norm; what differs is the entrance and the head."""

        def __init__(self):
            super().__init__()
            d, kind = w["d"], w["kind"]
            self.blocks = nn.ModuleList(Block(kind == "gpt") for _ in range(w["L"]))
            self.norm = nn.LayerNorm(d)
            self.position = nn.Parameter(torch.randn(w["T"], d) * 0.02)
            if kind == "video":
                self.conv = nn.Sequential(
                    nn.Conv2d(1, 64, 3, 2, 1), nn.ReLU(), nn.Conv2d(64, 128, 3, 2, 1), nn.ReLU(),
                    nn.Conv2d(128, 256, 3, 2, 1), nn.ReLU())
                self.project = nn.Linear(256, d)
            else:
                self.token = nn.Embedding(w["V"], d)
                nn.init.normal_(self.token.weight, std=0.02)
            if kind == "encoder":
                self.norm_in, self.pool = nn.LayerNorm(d), nn.Linear(d, d)
            if kind != "gpt":
                self.classify = nn.Linear(d, w["classes"])

        def enter(self, x):
            if w["kind"] != "video":
                return self.token(x)
            features = self.conv(x.flatten(0, 1)).mean((2, 3))
            return self.project(features).view(w["B"], w["T"], w["d"])

        def forward(self, x, target):
            h = self.enter(x) + self.position
            if w["kind"] == "encoder":
                h = self.norm_in(h)
            for block in self.blocks:
                if args.checkpoint:
                    h = torch.utils.checkpoint.checkpoint(block, h, use_reentrant=False)
                else:
                    h = block(h)
            h = self.norm(h)
            if w["kind"] == "gpt":
                logits = (h @ self.token.weight.t()).flatten(0, 1)  # tied head
            elif w["kind"] == "encoder":
                logits = self.classify(torch.tanh(self.pool(h[:, 0])))
            else:
                logits = self.classify(h[:, -1])
            return F.cross_entropy(logits.float(), target.flatten())

    B, T = w["B"], w["T"]
    if w["kind"] == "video":
        x = torch.randn(B, T, 1, w["side"], w["side"])
    else:
        x = torch.randint(w["V"], (B, T))
    target = torch.randint(w["V"], (B, T)) if w["kind"] == "gpt" else torch.randint(w["classes"], (B,))
    return Trunk(), x, target


def main():
    args = options()
    restart_clean(args)
    started = time.perf_counter()
    import torch
    import torch.utils.checkpoint

    rss_import = torch_measure.peak_rss()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    w = WORKLOADS[args.workload]
    model, x, target = build(torch, w, args)
    model, x, target = model.to(args.device), x.to(args.device), target.to(args.device)
    if args.device == "cuda" and args.mode != "default":
        torch.set_float32_matmul_precision("high")  # TF32, where the card has it
    forward = torch.compile(model, mode=args.compile) if args.compile else model
    low = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(args.mode)
    scaler = torch.amp.GradScaler(args.device, enabled=args.mode == "fp16")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.01, **({} if args.mode == "default" else {"fused": True}))

    def step():
        with torch.autocast(args.device, dtype=low, enabled=low is not None):
            loss = forward(x, target)
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return loss.item()

    times, losses, foreign = [], [], []
    for i in range(WARMUP + (args.steps or w["n"])):
        busy, own, t = busy_seconds(), time.process_time(), time.perf_counter()
        losses.append(step())
        t = time.perf_counter() - t
        if i == 0:
            first = time.perf_counter() - started
        if i >= WARMUP:
            times.append(t)
            foreign.append(max(0.0, busy_seconds() - busy - (time.process_time() - own)) / t)
    flops = step_flops(w)
    median = statistics.median(times)
    cuda = torch_measure.cuda_library_rss()
    torch_measure.say({
        "workload": args.workload, "mode": args.mode, "device": torch.cuda.get_device_name() if args.device == "cuda" else "cpu",
        "compile": args.compile, "card_bytes": torch.cuda.max_memory_reserved() if args.device == "cuda" else 0, "ms": round(median * 1e3, 2), "best_ms": round(min(times) * 1e3, 2),
        "rss": torch_measure.peak_rss() - cuda, "rss_import": rss_import - cuda, "rss_cuda_libraries": cuda,
        "steps": len(times), "threads": torch.get_num_threads(), "gflop": round(flops / 1e9, 1),
        "gflops": round(flops / median / 1e9, 1), "foreign_cpu": round(statistics.median(foreign), 3),
        "first_update_s": round(first, 2), "first_loss": round(losses[0], 4), "last_loss": round(losses[-1], 4),
        "parameters": sum(p.numel() for p in model.parameters()), "torch": torch.__version__,
        "blas": "mkl" if torch.backends.mkl.is_available() else "other", "capability": torch.backends.cpu.get_cpu_capability(),
        "attention": "written-out" if written_out(args) else "sdpa",
        "preload": [os.path.basename(path) for path in os.environ.get("LD_PRELOAD", "").split(":") if path]})
    if args.profile:
        from torch.profiler import ProfilerActivity, profile
        with profile(activities=[ProfilerActivity.CPU]) as p:
            for _ in range(3):
                step()
        print(p.key_averages().table(sort_by="self_cpu_time_total", row_limit=25), file=sys.stderr)


if __name__ == "__main__":
    main()
