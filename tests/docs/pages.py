"""Markdown pages as blocks: what is run, what is a file, what is marked, and what is neither.

A fenced block of a page is one of these, or the page is wrong:

- `console`: lines that begin with `$ ` are run, the others are what they print. `...` on a line of
  its own stands for any lines, `…` within a line for any text. After `<!-- numbers differ -->`
  numbers, ids and times may differ.
- any language after `<!-- file: NAME -->`: written to NAME before the next command.
- any language after `<!-- needs hardware -->`, `<!-- needs a cluster -->`, `<!-- needs docker -->`:
  not run here, and the page says why.
- any language after `<!-- not a command -->`: a grammar, a list, a message.
- any language after `<!-- run by tests/... -->`, or on a page that says `<!-- all run by ... -->`:
  another test runs it; that file must name the page.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
NEEDS = ("hardware", "a cluster", "docker")
VARIES = "numbers differ"

_COMMENT = re.compile(r"<!-- (.*?) -->")
_FENCE = re.compile(r"^( *)(```+)(.*)$")


class PageError(Exception):
    """A block of a page that nothing runs and nothing marks: where, and why."""


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the comments right before it, its text and its line."""

    language: str
    marks: tuple[str, ...]
    text: str
    line: int

    def find_mark(self, begin: str) -> str | None:
        """Return what follows these words in a mark."""
        found = [mark[len(begin) :].strip() for mark in self.marks if mark.startswith(begin)]
        return found[0] if found else None


@dataclass(frozen=True)
class Step:
    """A command with the lines that the page shows after it."""

    command: str
    shown: tuple[str, ...]
    line: int
    varies: bool


@dataclass(frozen=True)
class File:
    """A file that the page shows, to be there from now on."""

    name: str
    text: str


@dataclass(frozen=True)
class Page:
    """A page's blocks in order."""

    path: Path
    blocks: tuple[Block, ...]
    runner: str | None  # of all blocks, if another test runs them

    @property
    def name(self) -> str:
        """Return its path in the repository, or wherever it is."""
        is_ours = self.path.is_relative_to(ROOT)
        return str(self.path.relative_to(ROOT) if is_ours else self.path)


def list_pages() -> list[Path]:
    """Return the pages that people read first; READMEs of folders are left to their tests."""
    names = ("README.md", "CONTRIBUTING.md", "docker/README.md")
    pages = [*(ROOT / name for name in names), *sorted((ROOT / "docs").glob("*.md"))]
    return [page for page in pages if page.exists()]


def read_page(path: Path) -> Page:
    """Return a page."""
    text = path.read_text(encoding="utf-8")
    blocks: list[Block] = []
    marks: list[str] = []
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        fence = _FENCE.match(line)
        if fence is None:
            marks = [*marks, *_COMMENT.findall(line)] if _COMMENT.search(line) or not line else []
            continue
        indent, ticks, language = len(fence[1]), fence[2], fence[3].strip()
        body = []
        for _, inner in lines:
            if inner.strip() == ticks:
                break
            body.append(inner[indent:])
        else:
            raise PageError(f"{path.name}, line {number}: the block is never closed")
        blocks.append(Block(language, tuple(marks), "\n".join(body) + "\n", number))
        marks = []
    runner = re.search(r"<!-- all run by (\S+) -->", text)
    return Page(path, tuple(blocks), runner[1] if runner else None)


def list_steps(page: Page) -> list[Step | File]:
    """Return what to do, in order; PageError if a block is neither run nor marked."""
    steps: list[Step | File] = []
    if page.runner is not None:
        check_runner(page, page.runner)
        return steps
    for block in page.blocks:
        steps += list_block(page, block)
    return steps


def list_block(page: Page, block: Block) -> list[Step | File]:
    """Return what to do with one block."""
    where = f"{page.name}, line {block.line}"
    needed = block.find_mark("needs ")
    runner = block.find_mark("run by ")
    name = block.find_mark("file: ")
    if needed is not None:
        if needed not in NEEDS:
            raise PageError(f"{where}: needs {needed}? It may need {', '.join(NEEDS)}")
        return []
    if runner is not None:
        check_runner(page, runner)
        return []
    if "not a command" in block.marks:
        if block.language in ("console", "shell", "sh", "bash"):
            raise PageError(f"{where}: a {block.language} block is a command")
        return []
    if name is not None:
        return [File(name, block.text)]
    if block.language == "console":
        return [*split_console(block, where)]
    raise PageError(f"{where}: this {block.language or 'plain'} block is neither run nor marked")


def check_runner(page: Page, runner: str) -> None:
    """See that the file that is said to run a page knows of it."""
    path = ROOT / runner
    if not path.exists():
        raise PageError(f"{page.name}: there is no {runner}")
    if page.path.name not in path.read_text(encoding="utf-8"):
        raise PageError(f"{page.name}: {runner} does not name it")


def split_console(block: Block, where: str) -> list[Step]:
    """Return the commands of a console block with what they print."""
    steps: list[Step] = []
    for offset, line in enumerate(block.text.splitlines(), 1):
        if line.startswith("$ "):
            steps.append(Step(line[2:], (), block.line + offset, VARIES in block.marks))
        elif not steps:
            raise PageError(f"{where}: what is printed before any command?")
        elif steps[-1].command.endswith("\\"):
            last = steps[-1]
            command = f"{last.command}\n{line.removeprefix('> ')}"
            steps[-1] = Step(command, (), last.line, last.varies)
        else:
            last = steps[-1]
            steps[-1] = Step(last.command, (*last.shown, line), last.line, last.varies)
    return steps
