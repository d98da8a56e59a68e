"""The rivals that have to be built: eKuiper from its Go module, A-Tree from its crate.

Each is built once into `.cache/rivals`, by its own tools from its own registry, and only by a whole
run: it takes minutes. Nothing of theirs is in this repository; the few lines here call them. What
cannot be had is `Missing`, with the reason, and the benchmark goes on without it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.common import say

CACHE = Path(__file__).resolve().parents[1] / ".cache" / "rivals"
EKUIPER = "v1.14.7"
A_TREE = "0.6.1"
_MODULE = "github.com/lf-edge/ekuiper"
_PATIENCE = 3600  # s
_GO_MAIN = f"""\
package main

import "{_MODULE}/cmd"

func main() {{ cmd.Main() }}
"""
_CARGO = f"""\
[package]
name = "a-tree-rounds"
version = "0.0.0"
edition = "2021"

[dependencies]
a-tree = "={A_TREE}"
"""
# The rounds of `rivals_tree`: rules and events of two files, then a line for every line that comes.
_RUST_MAIN = """\
use a_tree::{ATree, AttributeDefinition};
use std::{env, fs, io, io::BufRead, io::Write, time::Instant};

fn resident() -> u64 {
    let text = fs::read_to_string("/proc/self/statm").unwrap();
    4096 * text.split(' ').nth(1).unwrap().parse::<u64>().unwrap()
}

fn main() {
    let paths: Vec<String> = env::args().collect();
    let rules = fs::read_to_string(&paths[1]).unwrap();
    let values: Vec<Vec<i64>> = fs::read_to_string(&paths[2]).unwrap().lines()
        .map(|line| line.split(' ').map(|word| word.parse().unwrap()).collect()).collect();
    let names: Vec<String> = (0..values[0].len()).map(|n| format!("a{n}")).collect();
    let kinds: Vec<AttributeDefinition> =
        names.iter().map(|name| AttributeDefinition::integer(name)).collect();
    let before = resident();
    let mut tree = ATree::new(&kinds).unwrap();
    for (id, rule) in rules.lines().enumerate() {
        tree.insert(&(id as u64), rule).unwrap();
    }
    let grown = resident().saturating_sub(before);
    let events: Vec<_> = values.iter().map(|row| {
        let mut builder = tree.make_event();
        for (name, value) in names.iter().zip(row) {
            builder.with_integer(name, *value).unwrap();
        }
        builder.build().unwrap()
    }).collect();
    println!("{grown}");
    for line in io::stdin().lock().lines() {
        line.unwrap();
        let mut answers = Vec::with_capacity(events.len());
        let start = Instant::now();
        for event in &events {
            let report = tree.search(event).unwrap();
            let found = report.matches();
            answers.push((found.len(), found.iter().copied().sum::<u64>()));
        }
        print!("{}", start.elapsed().as_secs_f64());
        for (count, ids) in answers {
            print!(" {count}:{ids}");
        }
        println!();
        io::stdout().flush().unwrap();
    }
}
"""


class Missing(RuntimeError):
    """A rival cannot be had here; the words say why."""


def find_ekuiper(may_build: bool) -> tuple[Path, Path]:
    """Return eKuiper's server and the folder of its settings; build them if need be."""
    folder = CACHE / f"ekuiper-{EKUIPER}"
    server, settings = folder / "kuiperd", folder / "etc"
    if not server.exists():
        go = _find_tool("go", may_build)
        say(f"  building eKuiper {EKUIPER}, some minutes")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "main.go").write_text(_GO_MAIN, encoding="utf-8")
        wanted = folder / "go.mod"
        if not wanted.exists():  # a second try goes on where the first one failed
            wanted.write_text(f"module rival\n\ngo 1.22\n\nrequire {_MODULE} {EKUIPER}\n")
        where = _run([go, "mod", "download", "-json", f"{_MODULE}@{EKUIPER}"], folder)
        etc = Path(json.loads(where)["Dir"]) / "etc"
        shutil.copytree(etc, settings, dirs_exist_ok=True, copy_function=shutil.copyfile)
        # As its makefile's `build_core`: the smallest edition, which has all that is needed here.
        command = [go, "build", "-mod=mod", "-trimpath", "-tags", "core", "-o", "kuiperd"]
        # A dependency of its reaches into the runtime, which newer linkers refuse by themselves.
        flags = "-s -w -checklinkname=0"
        _run([*command, "-ldflags", flags, "."], folder, {"CGO_ENABLED": "0"})
    return server, settings


def find_a_tree(may_build: bool) -> Path:
    """Return the program that matches by the A-Tree crate; build it if need be."""
    folder = CACHE / f"a-tree-{A_TREE}"
    program = folder / "target" / "release" / "a-tree-rounds"
    if not program.exists() or (folder / "src" / "main.rs").read_text("utf-8") != _RUST_MAIN:
        cargo = _find_tool("cargo", may_build)
        say(f"  building A-Tree {A_TREE}, some minutes")
        (folder / "src").mkdir(parents=True, exist_ok=True)
        (folder / "Cargo.toml").write_text(_CARGO, encoding="utf-8")
        (folder / "src" / "main.rs").write_text(_RUST_MAIN, encoding="utf-8")
        _run([cargo, "build", "--release", "--quiet"], folder)
    return program


def _find_tool(name: str, may_build: bool) -> str:
    if not may_build:
        raise Missing("not built yet; a run without --quick builds it")
    found = shutil.which(name)
    if found is None:
        raise Missing(f"it is built with {name}, which is not installed")
    return found


def _run(command: Sequence[str], folder: Path, more: Mapping[str, str] | None = None) -> str:
    """Run a tool at low priority; Missing with its last line if it fails."""
    try:
        done = subprocess.run(
            ["nice", "-n", "15", *command],
            cwd=folder,
            env={**os.environ, **(more or {})},
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Missing(f"{Path(command[0]).name} {command[1]}: {error}") from None
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no reason given"]
        raise Missing(f"{Path(command[0]).name} {command[1]}: {last[0]}")
    return done.stdout
