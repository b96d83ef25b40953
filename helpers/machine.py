"""What this machine is: the part of a measurement's conditions that does not change between two runs."""

from __future__ import annotations

import platform
from pathlib import Path


def processor() -> str:
    """The processor's name, as the system gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def fast_bfloat16(features: frozenset[str] | None = None) -> bool:
    """Whether this processor multiplies matrices in bfloat16 at a useful speed.

    PyTorch has fast kernels for it from AVX-512 on (x86) or with the extension ``bf16`` (Arm); on other
    processors it falls back to code that was ten times slower than float32 where we tried it.

    Args:
        features: what the processor can do, as ``/proc/cpuinfo`` lists it; by default this machine's.
    """
    known = _features() if features is None else features
    return {"avx512bw", "avx512vl", "avx512dq"} <= known or "bf16" in known


def _features() -> frozenset[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return frozenset()
    words = (line.split(":", 1)[1] for line in lines if line.lower().startswith(("flags", "features")))
    return frozenset(next(words, "").split())


def system() -> str:
    """Name and version of the operating system, and the kind of processor."""
    try:
        name = platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        name = f"{platform.system()} {platform.release()}"
    return f"{name}, {platform.machine()}"
