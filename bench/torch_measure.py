"""What the PyTorch programs that train whole models share: how updates are timed, and what memory they took."""

import ctypes
import json
import math
import resource
import statistics
import time

WARMUP = 5  # updates: the third still records CUDA graphs


class Energy:
    """The joules that a card drew, by NVIDIA's management library; None where it does not say."""

    def __init__(self, uuid):
        try:
            self.library = ctypes.CDLL("libnvidia-ml.so.1")
            self.card = ctypes.c_void_p()
            known = self.library.nvmlInit_v2() == 0 and self.library.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(self.card)) == 0
        except OSError:
            known = False
        if not known:
            self.library = None

    def joules(self):
        millijoules = ctypes.c_ulonglong()
        if self.library is None or self.library.nvmlDeviceGetTotalEnergyConsumption(self.card, ctypes.byref(millijoules)) != 0:
            return None
        return millijoules.value / 1e3


def say(result):
    """Prints one JSON object, with null for what is not a finite number."""
    finite = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in result.items()}
    print(json.dumps(finite, allow_nan=False), flush=True)


def energy(torch, device):
    """Energy of the current card; of None if it is none."""
    if device != "cuda":
        return None
    return Energy("GPU-" + str(torch.cuda.get_device_properties(0).uuid))


def peak_rss():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def cuda_library_rss():
    """Resident bytes of CUDA libraries that a CUDA build of PyTorch maps although no card is used."""
    marks = ("/nvidia/", "_cuda", "libcuda", "libcudart", "libcublas", "libcudnn", "libnccl", "libnvrtc", "libcusparse")
    total, counted = 0, False
    with open("/proc/self/smaps", encoding="ascii", errors="replace") as maps:
        for line in maps:
            head = line.split(None, 5)
            if not head[0].endswith(":"):
                counted = len(head) == 6 and any(m in head[5] for m in marks)
            elif counted and head[0] == "Rss:":
                total += int(head[1]) * 1024
    return total


def update(torch, work, forward, device, low, compiled):
    """A function that does one update and returns its loss: micro-batches under autocast, the gradients' norm, AdamW."""
    parameters = [p for p in work.model.parameters() if p.requires_grad]
    # A compiled program writes its gradients to the same place each time: sums of several need one of their own.
    keep = compiled and work.accumulation > 1
    for p in parameters:
        p.grad = torch.zeros_like(p) if keep else None
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, weight_decay=0.01, fused=True)
    scaler = torch.amp.GradScaler(device, enabled=low == torch.float16)

    def step():
        optimizer.zero_grad(set_to_none=not keep)
        total = 0
        for _ in range(work.accumulation):
            if compiled:
                torch.compiler.cudagraph_mark_step_begin()
            with torch.autocast(device, dtype=low, enabled=low is not None):
                loss = forward(*work.batch)
            scaler.scale(loss / work.accumulation).backward()
            total = total + loss.detach().clone()  # over which a compiled program may write its next one
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(parameters, 1.0, foreach=True)
        scaler.step(optimizer)
        scaler.update()
        return total.item() / work.accumulation

    return step


def measure(torch, work, mode, device, low, updates, seconds):
    """Times updates of a work and prints one JSON object. mode is eager or one of torch.compile's; it ends after so many
    updates or seconds, whichever comes first."""
    meter = energy(torch, device)
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        free, _ = torch.cuda.mem_get_info()
    began = time.perf_counter()
    forward = work.model if mode == "eager" else torch.compile(work.model, mode=None if mode == "default" else mode)
    step = update(torch, work, forward, device, low, mode != "eager")
    losses = [step() for _ in range(WARMUP)]
    ready, joules = time.perf_counter(), meter.joules() if meter else None
    times = []
    while len(times) < updates and (not times or time.perf_counter() - ready < seconds):
        t = time.perf_counter()
        losses.append(step())
        times.append(time.perf_counter() - t)
    result = {
        "work": work.name, "mode": mode, "torch": torch.__version__, "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "dtype": str(low).removeprefix("torch.") if low else "float32", "ms": 1e3 * statistics.median(times), "best_ms": 1e3 * min(times), "updates": len(times),
        "units": work.units, "parameters": sum(p.numel() for p in work.model.parameters()), "first_loss": losses[0], "last_loss": losses[-1],
        "ready_s": ready - began,
    }
    if joules is not None:
        result["joules"] = (meter.joules() - joules) / len(times)
    if device == "cuda":
        result["card_bytes"] = torch.cuda.max_memory_reserved()
        result["card_used_bytes"] = max(0, free - torch.cuda.mem_get_info()[0])
    else:
        result["rss"] = peak_rss() - cuda_library_rss()
    say(result)
