"""The console command: what it prints, how it fails, and what it does not import."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from denwatch import cli
from denwatch.client.vocabulary import load_shipped

from tests.language.console import FEVER, VECTOR, Capture, pipe, run

ROOT = Path(__file__).resolve().parents[2]

# Starting up -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "forbidden"),
    [
        (
            ["compile", FEVER],
            ["numpy", "numba", "matplotlib", "lxml", "scipy", "pandas", "asyncio"],
        ),
        (["explain", VECTOR], ["numpy", "numba", "matplotlib", "lxml"]),
        (["vocabulary", "list"], ["numpy", "matplotlib", "lxml", "lark"]),
        (["--help"], ["argparse", "lark", "lxml", "denwatch.client", "denwatch.protocol"]),
    ],
)
def test_nothing_heavy_is_imported(command: list[str], forbidden: list[str]) -> None:
    program = (
        "import sys; from denwatch.cli import main; status = main(sys.argv[1:]);"
        "print(*sorted(sys.modules), file=sys.stderr); sys.exit(status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stderr.splitlines()[-1].split())
    assert "denwatch.cli" in loaded
    assert loaded.isdisjoint(forbidden)


def test_commands_are_named_by_strings_that_lead_somewhere() -> None:
    for name in cli.COMMANDS:
        assert callable(cli.load_command(name))


def test_help_lists_the_commands(capfd: Capture) -> None:
    status, out, err = run(capfd, "--help")
    assert status == 0
    assert err == ""
    for name, command in cli.COMMANDS.items():
        assert name in out
        assert command.summary in out
    assert "exit status:" in out


@pytest.mark.parametrize("name", sorted(cli.COMMANDS))
def test_help_of_a_command_has_examples(name: str, capfd: Capture) -> None:
    status, out, _ = run(capfd, name, "--help")
    assert status == 0
    assert f"usage: denwatch {name}" in out
    assert f"  denwatch {name} " in out.partition("examples:")[2]
    assert "exit status:" in out


def test_no_command_and_a_wrong_one(capfd: Capture) -> None:
    assert run(capfd)[0] == 2
    status, _, err = run(capfd, "complie")
    assert status == 2
    assert 'no command "complie"; did you mean "compile"?' in err
    assert run(capfd, "--version")[1].startswith("denwatch ")


# compile -----------------------------------------------------------------------------------------


def test_compile_prints_hex_and_length(capfd: Capture) -> None:
    status, out, err = run(capfd, "compile", FEVER)
    assert (status, out, err) == (0, f"{VECTOR}\n16 bytes, event patient\n", "")


def test_compile_reads_an_argument_a_file_or_the_pipe(
    capfd: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = {"words": FEVER + "\n"}
    for surface in ("xml", "json"):
        documents[surface] = run(capfd, "compile", "--to", surface, FEVER)[1]
    for surface, text in documents.items():
        path = tmp_path / f"subscription.{surface}"
        path.write_text(text, encoding="utf-8")
        pipe(monkeypatch, b"\xef\xbb\xbf" + text.encode())
        ways = [["compile", text], ["compile", "--file", str(path)], ["compile"]]
        for way in ways:
            assert run(capfd, *way)[1].splitlines()[0] == VECTOR, (surface, way)
    pipe(monkeypatch, FEVER.encode())
    assert run(capfd, "compile", "-")[1].splitlines()[0] == VECTOR


def test_compile_to_other_surfaces(capfd: Capture) -> None:
    out = run(capfd, "compile", "--to", "words", '{"when": {"attribute": "pulse", ">": 9}}')[1]
    assert out == "pulse above 9\n"
    out = run(capfd, "compile", "--to", "xml", "--self-contained", "heart_rate is high")[1]
    assert "<Fuzzifier>rising(100, 140 bpm)</Fuzzifier>" in out


def test_compile_prints_json(capfd: Capture) -> None:
    out = run(capfd, "compile", "--json", FEVER + ", top 5, prefer a over b")[1]
    answer = json.loads(out)
    assert answer["hex"] == VECTOR
    assert answer["length"] == 16
    assert answer["options"] == {"top": 5, "prefer": [["a", "b"]]}
    assert answer["vocabulary"] == load_shipped("rescue").hash
    status, out, err = run(capfd, "compile", "--json", "smoek is dense")
    assert status == 1
    assert err == ""
    assert json.loads(out)["at"] == 1
    assert json.loads(out)["ok"] is False


def test_compile_tells_what_it_approximates(capfd: Capture) -> None:
    status, out, err = run(capfd, "compile", "glucose is normal")
    assert status == 0
    assert "approximated: glucose" in err
    assert "approximated" not in out


def test_compile_says_where_the_mistake_is(capfd: Capture, tmp_path: Path) -> None:
    status, out, err = run(capfd, "compile", "heart_rate is high and smoek is dense")
    assert (status, out) == (1, "")
    assert err.splitlines()[1:] == [
        "  heart_rate is high and smoek is dense",
        "                         ^^^^^",
        "  try heart_rate is high",
        "  try smoke is dense",
    ]
    assert err.startswith('column 24: unknown attribute "smoek"; did you mean "smoke"')
    path = tmp_path / "words.txt"
    path.write_text("heart_rate is high\n  or pulse above 400\n", encoding="utf-8")
    status, _, err = run(capfd, "compile", "--file", str(path))
    assert status == 1
    assert err.startswith(f"{path}, line 2, column 18: 400 is outside the domain")
    assert err.splitlines()[2].index("^") == 2 + 17


def test_a_long_line_is_cut_around_the_mistake(capfd: Capture) -> None:
    words = " or ".join(["heart_rate is high"] * 20) + " or smoek is dense"
    _, _, err = run(capfd, "compile", words)
    source, caret, *tries = err.splitlines()[1:]
    assert all(line.startswith("  try ") for line in tries)
    assert len(source) <= 102
    assert source[caret.index("^") :].startswith("smoek")


def test_compile_options(capfd: Capture) -> None:
    assert run(capfd, "compile", "--handle", "0x1234", FEVER)[1].startswith("41281234")
    assert run(capfd, "compile", "--handle", "70000", FEVER)[0] == 2
    words = "wind_direction is near 350 ° within 30 °"
    assert run(capfd, "compile", words)[0] == 1
    assert run(capfd, "compile", "--vocabulary", "weather", words)[0] == 0
    both = ("--vocabulary", "weather", "--vocabulary", "rescue")
    assert run(capfd, "compile", *both, FEVER)[1].splitlines()[0] == VECTOR
    words = "glucose is triangle(3, 4, 9) and heart_rate is very high and pain is severe"
    short, exact = (run(capfd, "compile", *more, words)[1] for more in ((), ("--exact",)))
    assert len(short.splitlines()[0]) <= 34 < len(exact.splitlines()[0])


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["compile", "--file", "/does/not/exist"], 3, "No such file"),
        (["compile", "--vocabulary", "recsue", FEVER], 3, "shipped are rescue, weather"),
        (["compile", "--vocabulary", "/does/not/exist.toml", FEVER], 3, "No such file"),
        (["compile", "x", "--file", "y"], 2, "not both"),
        (["compile", "--handle", "zz", FEVER], 2, '"zz" is not a number of 16 bits'),
        (["compile", "--json", "--verbose", FEVER], 2, "not allowed with"),
        (["explain", "xyz"], 1, "not hexadecimal"),
        (["explain", ""], 1, "no bytes"),
        (["explain", "ff00"], 1, "not the start of a vector"),
        (["explain", "7f" + VECTOR[2:]], 1, "has no event 63"),
        (["explain", "bf00000700200003978c"], 1, "has no event 63"),
        (["plot", "heart_rate", "-o", "x.pdf"], 2, ".png or .svg"),
        (["plot", "hart_rate", "-o", "x.png"], 1, 'did you mean "heart_rate"'),
        (["plot", "triage", "-o", "x.png"], 1, "no fuzzy terms"),
        (["plot", "heart_rate is hihg", "-o", "x.png"], 1, 'did you mean "high"'),
        (["plot", "heart_rate", "-o", "/does/not/exist/x.png"], 3, "No such file"),
        (["vocabulary"], 2, "ACTION"),
        (["vocabulary", "show", "pusle"], 1, 'did you mean "pulse"?'),
        (["vocabulary", "search", "xyzzy"], 1, 'nothing contains "xyzzy"'),
    ],
)
def test_failures_have_their_status(
    arguments: list[str], status: int, message: str, capfd: Capture
) -> None:
    found, out, err = run(capfd, *arguments)
    assert found == status
    assert message in err
    assert out == ""


def test_what_is_no_text_is_refused(
    capfd: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "binary"
    path.write_bytes(b"heart_rate \xff")
    status, _, err = run(capfd, "compile", "--file", str(path))
    assert (status, "byte 11 is not UTF-8" in err) == (1, True)
    pipe(monkeypatch, b"x" * (2 << 20))
    status, _, err = run(capfd, "compile")
    assert (status, "more than" in err) == (1, True)
