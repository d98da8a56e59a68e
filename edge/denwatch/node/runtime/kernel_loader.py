"""Loads the compiled matcher while the node serves: first in a process of its own, then here.

Compiling takes a minute of processor time, once on a machine, and holds the interpreter's lock for
seconds at a time. So a child process compiles, at the lowest priority, and leaves the result in the
cache on the disk. Then a thread of this process loads it from there, which takes two seconds of
short steps; the event loop runs between them. When all of it is there, `compiling.is_ready` says
so, and matcher and covering change over between two events. Whatever fails here is logged, and the
node goes on as it was.

`python -m denwatch.node.runtime.kernel_loader` is the child; it also fills the cache of a machine
before a node is started.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading

from denwatch.node.matching import compiling
from denwatch.node.matching.matcher import WORTH_COMPILING

_log = logging.getLogger("denwatch.node")
_LOWEST = 19  # priority
_PATIENCE = 10.0  # s to wait for the thread at the end


class KernelLoader:
    """Loads the kernels once, when there are subscriptions enough."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._is_stopped = False

    def offer(self, subscriptions: int) -> None:
        """Begin, if so many subscriptions are worth it and the extra is installed."""
        if self._thread is None and subscriptions >= WORTH_COMPILING and not compiling.is_ready():
            self._thread = threading.Thread(target=self._run, name="kernels", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End the child, and wait for what is being loaded: it cannot be interrupted."""
        self._is_stopped = True
        child = self._child
        if child is not None:
            child.terminate()
        if self._thread is not None:
            self._thread.join(_PATIENCE)

    def _run(self) -> None:
        if not compiling.is_installed():
            _log.info("many subscriptions: denwatch[fast] would match them in less time")
            return
        try:
            self._compile()
            if not self._is_stopped:
                load_kernels()
                _log.info("the compiled matcher is ready")
        except Exception as error:  # noqa: BLE001 - whatever it is, the node goes on as it was
            if not self._is_stopped:
                _log.warning("no compiled matcher, matching goes on without: %s", error)

    def _compile(self) -> None:
        """Let a process of its own fill the cache."""
        paths = os.pathsep.join(filter(None, sys.path))
        self._child = subprocess.Popen(
            [sys.executable, "-m", __name__],
            env={**os.environ, "PYTHONPATH": paths},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        if self._is_stopped:
            self._child.terminate()
        _, errors = self._child.communicate()
        if self._child.returncode:
            last = errors.decode(errors="replace").strip().rpartition("\n")[2]
            raise RuntimeError(last or f"the compiler ended with {self._child.returncode}")


def load_kernels() -> None:
    """Run every kernel once in this process, compiled anew or from the cache."""
    from denwatch.node.matching.index import warm_up

    warm_up()


if __name__ == "__main__":
    os.nice(_LOWEST)
    load_kernels()
