"""Runs a node until it is told to stop; what `denwatch node` does once it has a configuration."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
import time
from collections import deque

from denwatch.node.config import NodeConfig
from denwatch.node.runtime.build import Opened, open_node
from denwatch.node.runtime.process import Process
from denwatch.node.runtime.warmup import warm_up
from denwatch.node.store import StoreError, StoreFull

_log = logging.getLogger("denwatch.node")
_PAUSE = 5.0  # s before a node with a full disk tries again
_DEFECTS, _PERIOD = 5, 60.0  # so many within so many seconds end the process


def check_node(config: NodeConfig) -> None:
    """Open everything and close it again; what is wrong is raised."""
    open_node(config).store.close()


def serve_node(config: NodeConfig) -> None:
    """Run a node. StoreError, SecurityError, ValueError and OSError say why it cannot go on.

    After a full disk, or a defect of ours, memory may be ahead of the disk: it starts again from
    what is there. A defect that comes back at once is not run after for ever.
    """
    defects: deque[float] = deque(maxlen=_DEFECTS)
    warm_up(lambda words: print(f"{config.name}: {words}", file=sys.stderr, flush=True))
    while True:
        opened = open_node(config)
        try:
            asyncio.run(_serve(opened))
            return
        except StoreFull as error:
            _log.error("%s; nothing is acknowledged until there is room", error)
            time.sleep(_PAUSE)
        except (StoreError, OSError):
            raise
        except Exception:
            defects.append(time.monotonic())
            if len(defects) == _DEFECTS and defects[-1] - defects[0] < _PERIOD:
                raise
            _log.exception("a defect ended this run; the node starts again from its store")
        finally:
            opened.store.close()


async def _serve(opened: Opened) -> None:
    process = Process(opened.config, opened.assembly, opened.store, opened.clock)
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, process.stop)
    # What was built at the start stays for good: no need to look at it again and again.
    gc.collect()
    gc.freeze()
    await process.run(lambda: _tell_ready(process))


def _tell_ready(process: Process) -> None:
    config = process.config
    if config.broker is not None:
        where = f"at the broker {config.broker.address.host}:{config.broker.address.port}"
    else:
        where = "on " + ", ".join(
            f"{'mqtts' if address.has_tls else 'mqtt'}://{address.host}:{port}"
            for address, port in zip(config.listen, process.ports, strict=True)
        )
    print(f"{config.name} is ready {where}", flush=True)
