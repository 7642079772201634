"""Lower rooms never use higher ones: the order is the table of common/README.md, and what uses what is
said by the compilers (lists of headers), by nm (functions and tables) and by Python's own parser."""
import ast
import collections
import functools
import os
import pathlib
import re
import subprocess

import pytest
from helpers import ROOT

OBJECTS = pathlib.Path(os.environ["BUILD"]).absolute() / "obj"
STAGES = sorted(path.name for path in ROOT.glob("0?_*"))
CORE, PRODUCTS = ([room for room in re.findall(r"^\| \[`(\w+)/`\]\(%s/" % storey, (
    ROOT / "common/README.md").read_text(encoding="utf-8"), re.M)] for storey in ("core", "products"))
RANK = {name: rank for rank, names in enumerate(
    [["contract"], *([room] for room in CORE), STAGES, PRODUCTS]) for name in names}


def room_of(path):
    """The room, stage or product of a file; None for what has no place in the order."""
    top, *rest = pathlib.Path(path).parts
    name = top if top != "common" else "contract" if len(rest) < 3 else rest[1]
    return name if name in RANK else None


@functools.lru_cache(maxsize=None)
def objects():
    """{object: the files that it was compiled from, its source first}."""
    found = {}
    for listed in OBJECTS.glob("**/*.d"):
        words = listed.read_text(encoding="utf-8").split("\n\n")[0].replace("\\\n", " ").split()[1:]
        files = [os.path.normpath(word) for word in words if not word.startswith("/") and
                 not word.endswith(":")]
        made = listed.with_suffix(".o")
        if made.exists() and "wasm" not in made.parts and files and all((ROOT / file).exists() for file in files):
            found[str(made)] = files
    return found


def uses():
    """(user, used) of files: a header that is included, a function or table that is named."""
    all_objects, where, named = objects(), collections.defaultdict(set), []
    said = subprocess.run(["nm", "-A", "-P", *all_objects], text=True, capture_output=True, check=True)
    for line in said.stdout.splitlines():
        made, name, kind = line.split()[:3]
        source = all_objects[made.rstrip(":")][0]
        if kind == "U":
            named.append((source, name))
        elif kind in "TDBRCW":
            where[name].add(source)
    pairs = {(source, used) for source, name in named for used in where[name] if len(where[name]) == 1}
    return pairs | {(files[0], used) for files in all_objects.values() for used in files[1:]}


def test_every_room_is_in_the_table():
    rooms = {path.name for storey in ("core", "products")
             for path in (ROOT / "common" / storey).iterdir() if path.is_dir()} - {"__pycache__"}
    assert rooms == {*CORE, *PRODUCTS}


def test_arrows_point_downward():
    pairs = uses()
    assert len(pairs) > 500, "nothing was compiled in " + str(OBJECTS)
    upward = sorted((user, used) for user, used in pairs
                    if room_of(user) and room_of(used) and RANK[room_of(user)] < RANK[room_of(used)])
    assert not upward


@pytest.mark.parametrize("room", ["npy", "program"])
def test_no_two_files_of_a_room_call_each_other(room):
    pairs = {pair for pair in uses() if {room_of(file) for file in pair} == {room}}
    assert pairs and not [pair for pair in pairs if pair[::-1] in pairs]


def modules(folder):
    """{module: those of the folder that it imports}, of Python files that import each other."""
    names = {path.stem: path for path in folder.glob("*.py")}
    graph = {}
    for name, path in names.items():
        graph[name] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                graph[name] |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                graph[name] |= {node.module} if node.module else {alias.name for alias in node.names}
        graph[name] &= {*names} - {name}
    return graph


@pytest.mark.parametrize("folder", ["library/python/five_steps", "course", "reports", "book"])
def test_no_python_module_imports_itself_by_way_of_another(folder):
    graph = modules(ROOT / "common/products" / folder)
    while graph:
        leaves = {name for name, imports in graph.items() if not imports & {*graph}}
        assert leaves, f"a circle among {sorted(graph)}"
        graph = {name: imports for name, imports in graph.items() if name not in leaves}
