"""The compiled matcher is loaded beside the node's work, or the node goes on without it."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from denwatch.node.matching import compiling
from denwatch.node.matching.matcher import WORTH_COMPILING
from denwatch.node.runtime import kernel_loader
from denwatch.node.runtime.kernel_loader import KernelLoader

PATIENCE = 900.0  # s: the machine may be busy, and the cache empty


@pytest.fixture(autouse=True)
def _ready() -> Iterator[None]:
    was_ready = compiling.is_ready()
    compiling.declare_ready(False)
    yield
    compiling.declare_ready(was_ready)


def wait(loader: KernelLoader) -> None:
    assert loader._thread is not None
    loader._thread.join(PATIENCE)
    assert not loader._thread.is_alive()


def test_few_subscriptions_load_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KernelLoader, "_run", lambda _: pytest.fail("it began"))
    loader = KernelLoader()
    loader.offer(WORTH_COMPILING - 1)
    assert loader._thread is None
    compiling.declare_ready()
    loader.offer(WORTH_COMPILING)  # they are there already
    assert loader._thread is None
    loader.stop()


def test_many_subscriptions_load_the_kernels_once() -> None:
    loader = KernelLoader()
    loader.offer(WORTH_COMPILING)
    thread = loader._thread
    loader.offer(WORTH_COMPILING)
    assert loader._thread is thread
    wait(loader)
    assert compiling.is_ready()
    loader.stop()


def test_without_the_extra_a_line_says_what_would_help(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(compiling, "is_installed", lambda: False)
    loader = KernelLoader()
    with caplog.at_level(logging.INFO, "denwatch.node"):
        loader.offer(WORTH_COMPILING)
        wait(loader)
    assert "denwatch[fast]" in caplog.text
    assert not compiling.is_ready()


def test_a_compiler_that_fails_is_reported_and_nothing_changes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho no room for the cache >&2\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(broken))
    monkeypatch.setattr(kernel_loader, "load_kernels", lambda: pytest.fail("it went on"))
    loader = KernelLoader()
    with caplog.at_level(logging.WARNING, "denwatch.node"):
        loader.offer(WORTH_COMPILING)
        wait(loader)
    assert "no room for the cache" in caplog.text
    assert not compiling.is_ready()


def test_stopping_ends_the_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    began = tmp_path / "began"
    slow = tmp_path / "python"
    slow.write_text(f"#!/bin/sh\ntouch {began}\nexec sleep 3600\n")
    slow.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(slow))
    monkeypatch.setattr(kernel_loader, "load_kernels", lambda: pytest.fail("it went on"))
    loader = KernelLoader()
    loader.offer(WORTH_COMPILING)
    while not began.exists():
        time.sleep(0.01)
    loader.stop()
    wait(loader)
    assert loader._child is not None
    assert loader._child.returncode
