"""A clip with a known gap, for exercise 01-1: no speech, but everything that makes a gap hard to find."""

from __future__ import annotations

import numpy as np

HISS, LOUD, THRESHOLD = 20, 900, 100


def clip(gap_ms: int, *, rate_hz: int = 8000) -> np.ndarray:
    """300 ms of hiss, a "caller" with a pause of 120 ms inside, the gap, an "agent", 900 ms of hiss.

    The caller's last 20 ms and the agent's first 20 ms are below zero, as half a slow wave would be. Nothing
    in the hiss is louder than :data:`HISS`, everything in the sounds is :data:`LOUD`.
    """
    rng = np.random.default_rng(rate_hz)

    def hiss(ms: int) -> np.ndarray:
        return rng.integers(-HISS, HISS + 1, ms * rate_hz // 1000)

    def sound(ms: int) -> np.ndarray:
        return np.where(np.arange(ms * rate_hz // 1000) % 16 < 8, LOUD, -LOUD)

    def below(ms: int) -> np.ndarray:
        return np.full(ms * rate_hz // 1000, -LOUD)

    caller = (sound(250), hiss(120), sound(380), below(20))
    agent = (below(20), sound(600))
    return np.concatenate([hiss(300), *caller, hiss(gap_ms), *agent, hiss(900)]).astype(np.int16)
