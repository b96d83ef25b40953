"""A server that is starting, with a clock of its own, for the check of an exercise: nobody has to wait."""

from __future__ import annotations


class Startup:
    """Behaves like a server from its start on. Its clock moves when one sleeps, and a little with each look.

    Args:
        listens_s: until then nobody listens: the connection is refused.
        ready_s: until then it listens and says that it is not ready.
        patience: so many questions are answered; after them the caller, who seems never to stop, is ended.
            One who catches that, too, hears after as many more that it is ready, so that every loop ends.
    """

    def __init__(self, listens_s: float, ready_s: float, patience: int = 60) -> None:
        self.listens_s = listens_s
        self.ready_s = ready_s
        self.patience = patience
        self.now_s = 0.0
        self.asked = 0

    def clock(self) -> float:
        """Seconds on its clock. Raises as :meth:`ready` does."""
        self._may_go_on()
        self.now_s += 0.001
        return self.now_s

    def sleep(self, seconds: float) -> None:
        """Let its clock go on. Raises as :meth:`ready` does."""
        self._may_go_on()
        self.now_s += max(0.0, seconds)

    def ready(self) -> bool:
        """Whether it is ready.

        Raises:
            ConnectionRefusedError: nobody listens yet.
            SystemExit: it was asked too often. Not an ordinary exception, which ``except`` might swallow.
        """
        self.asked += 1
        self._may_go_on()
        if self.asked > 2 * self.patience:
            return True
        if self.now_s < self.listens_s:
            raise ConnectionRefusedError("connection refused")
        return self.now_s >= self.ready_s

    def _may_go_on(self) -> None:
        # Where time is taken and passes, too: a bare except around ready() must not hold a kernel for ever.
        if self.patience < self.asked <= 2 * self.patience:
            raise SystemExit(
                f"ready() was asked {self.patience} times, within {self.now_s:.1f} s of the clock that you "
                "were given: pause with the given sleep between two questions, and stop after timeout_s."
            )
