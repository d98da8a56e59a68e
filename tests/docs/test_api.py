"""docs/api.md shows the public API: every block runs, and the client's names are all shown."""

from __future__ import annotations

import ast
import re
import subprocess
import sys

import denwatch.client
import pytest

from simulator.site import REPOSITORY

PAGE = (REPOSITORY / "docs" / "api.md").read_text(encoding="utf-8")


def list_blocks() -> list[tuple[str, str]]:
    """Return the Python blocks of the page, each with its heading."""
    found: list[tuple[str, str]] = []
    for part in re.split(r"^## ", PAGE, flags=re.M)[1:]:
        heading = part.partition("\n")[0]
        found += [(heading, block) for block in re.findall(r"```python\n(.*?)```", part, re.S)]
    return found


def list_names(package: str) -> set[str]:
    """Return what the page imports directly from a package."""
    return {
        alias.name
        for _, block in list_blocks()
        for node in ast.walk(ast.parse(block))
        if isinstance(node, ast.ImportFrom) and node.module == package
        for alias in node.names
    }


@pytest.mark.parametrize(("heading", "block"), list_blocks())
def test_every_block_runs(heading: str, block: str) -> None:
    if heading == "denwatch.spark":
        pytest.importorskip("pyspark")
    for node in ast.walk(ast.parse(block)):
        if isinstance(node, ast.ImportFrom):
            assert node.module is not None
            assert node.module == heading or node.module.startswith(f"{heading}.")
    exec(compile(block, "docs/api.md", "exec"), {})


def test_the_page_shows_every_package_and_all_of_the_client() -> None:
    headings = {heading for heading, _ in list_blocks()}
    wanted = {"client", "protocol", "watchdog", "node", "spark"}
    assert headings == {f"denwatch.{name}" for name in wanted}
    assert list_names("denwatch.client") == set(denwatch.client.__all__)


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Engine'"):
        denwatch.client.Engine  # noqa: B018


def test_the_language_does_not_load_mqtt() -> None:
    program = (
        "import sys; from denwatch.client import compile_subscription, load_shipped, parse\n"
        "compile_subscription(parse('pain is severe'), load_shipped('rescue'))\n"
        "heavy = {'paho', 'numpy', 'numba', 'asyncio'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, check=True)
