"""The shell commands of docs/node.md, run one after the other in an empty folder."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from demo.site import find_free_ports
from tests.node.hosting import ENVIRONMENT, REPOSITORY

PAGE = (REPOSITORY / "docs" / "node.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```shell\n(.*?)^```$", PAGE, re.M | re.S)
DENWATCH = 'denwatch() { "$PYTHON" -m edge.cli "$@"; }\n'
# A person waits until "is ready" is there; a script has to look.
READY = "until grep -q 'is ready' node.txt; do sleep 0.1; done\n"


def write_script(ports: list[int]) -> str:
    """Return the page's commands as a script on free ports, which ends what it started."""
    script = DENWATCH + "trap 'kill $(jobs -p)' EXIT\nset -e\n"
    for block in BLOCKS:
        for line in block.splitlines():
            if line.startswith("denwatch node ") and line.endswith("&"):
                script += f"{line[:-1]} > node.txt 2>&1 &\n{READY}"
            else:
                script += line + "\n"
        script += "sleep 2\n"  # for what is printed in the background
    script = script.replace("--name north", f"--name north --listen mqtt://127.0.0.1:{ports[0]}")
    script = script.replace("mqtt://127.0.0.1:1884", f"mqtt://127.0.0.1:{ports[1]}")
    script = re.sub(r"^(mosquitto_...)", rf"\1 -p {ports[0]}", script, flags=re.M)
    here = f"--node mqtt://127.0.0.1:{ports[0]}"
    return re.sub(r"^(denwatch (?:subscribe|status).*)$", rf"\1 {here}", script, flags=re.M)


def test_the_page_has_commands() -> None:
    assert len(BLOCKS) >= 5


@pytest.mark.xdist_group("docs")
def test_the_commands_do_what_the_page_says(tmp_path: Path) -> None:
    done = subprocess.run(
        ["bash", "-c", write_script(find_free_ports(2))],
        cwd=tmp_path,
        env={**ENVIRONMENT, "PYTHON": sys.executable, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    told = done.stdout
    assert done.returncode == 0, told
    assert '"ok":true' in told
    assert 'unknown attribute \\"patient_temperatur\\"' in told
    assert '"device":"tester"' in told
    assert "140" in told  # by denwatch subscribe
    assert "north" in told  # by denwatch status
    assert (tmp_path / "south" / "node.toml").exists()
