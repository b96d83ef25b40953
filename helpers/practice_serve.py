"""A server that is starting, with a clock of its own, for the check of an exercise: nobody has to wait."""

from __future__ import annotations


class Startup:
    """Behaves like a server from its start on. Its clock moves when one sleeps, and a little with each look.

    Args:
        listens_s: until then nobody listens: the connection is refused.
        ready_s: until then it listens and says that it is not ready.
        patience: so many questions are answered; the next ends the caller, who seems never to stop.
    """

    def __init__(self, listens_s: float, ready_s: float, patience: int = 60) -> None:
        self.listens_s = listens_s
        self.ready_s = ready_s
        self.patience = patience
        self.now_s = 0.0
        self.asked = 0

    def clock(self) -> float:
        """Seconds on its clock."""
        self.now_s += 0.001
        return self.now_s

    def sleep(self, seconds: float) -> None:
        """Let its clock go on."""
        self.now_s += max(0.0, seconds)

    def ready(self) -> bool:
        """Whether it is ready.

        Raises:
            ConnectionRefusedError: nobody listens yet.
            SystemExit: it was asked too often. Not an ordinary exception, which ``except`` might swallow.
        """
        self.asked += 1
        if self.asked > self.patience:
            raise SystemExit(
                f"ready() was asked {self.patience} times, and hardly any time had passed on the clock that "
                "you were given: pause with the given sleep between two questions, and stop after timeout_s."
            )
        if self.now_s < self.listens_s:
            raise ConnectionRefusedError("connection refused")
        return self.now_s >= self.ready_s
