"""Lower rooms never use higher ones: the order is the table of common/README.md; what uses what is said by
the #include lines of all sources, by nm (functions and tables) and by Python's own parser."""
import ast
import collections
import functools
import pathlib
import re

import pytest
from helpers import BUILD, ROOT, STAGES, run

CORE, PRODUCTS = ([room for room in re.findall(r"^\| \[`(\w+)/`\]\(%s/" % storey, (
    ROOT / "common/README.md").read_text(encoding="utf-8"), re.M)] for storey in ("core", "products"))
RANK = {name: rank for rank, names in enumerate(
    [["contract"], *([room] for room in CORE), STAGES, PRODUCTS]) for name in names}
SOURCES = [line for line in run("git", "ls-files", "*.c", "*.h", "*.cc", "*.cu", "*.cuh", cwd=ROOT).out.split()
           if (ROOT / line).exists()]


def room_of(path):
    """The room, stage or product of a file; None for what has no place in the order.  Exercises of a stage
    are a product's: the judge hands them out."""
    top, *rest = pathlib.Path(path).parts
    if "exercises" in rest:
        return "course"
    name = top if top != "common" else "contract" if len(rest) < 3 else rest[1]
    return name if name in RANK else None


def included():
    """(user, used) of files.  A name is looked up beside its file, then where compilers.mk says."""
    for user in SOURCES:
        places = [pathlib.Path(user).parent, *map(pathlib.Path, (
            "common/core", "common/products", pathlib.Path(user).parts[0], "04_monoid_tiled_cpu", "."))]
        text = (ROOT / user).read_text(encoding="utf-8")
        for name in re.findall(r'^ *# *include "([^"]+)"', text, re.M):
            for place in places:
                if (ROOT / place / name).exists():
                    yield user, str((ROOT / place / name).resolve().relative_to(ROOT))
                    break


@functools.lru_cache(maxsize=None)
def uses():
    """The same, and of functions and tables: who names one that stands in one object alone."""
    where, named = collections.defaultdict(set), []
    objects = {str(made): source for source in SOURCES if not source.endswith("h")
               for made in (BUILD / "obj" / source).parent.glob(f"{pathlib.Path(source).stem}.*o")}
    for line in run("nm", "-A", "-P", *objects).out.splitlines():
        made, name, kind = line.split()[:3]
        source = objects[made.rstrip(":")]
        if kind == "U":
            named.append((source, name))
        elif kind in "TDBRCW":
            where[name].add(source)
    return {*included()} | {(user, used) for user, name in named for used in where[name] if len(where[name]) == 1}


def test_every_room_is_in_the_table():
    rooms = {path.name for storey in ("core", "products")
             for path in (ROOT / "common" / storey).iterdir() if path.is_dir()} - {"__pycache__"}
    assert rooms == {*CORE, *PRODUCTS}


def test_arrows_point_downward():
    pairs = uses()
    assert len(pairs) > 1000, f"nothing was compiled in {BUILD}/obj"
    upward = sorted((user, used) for user, used in pairs
                    if room_of(user) and room_of(used) and RANK[room_of(user)] < RANK[room_of(used)])
    assert not upward


def test_a_name_stands_for_one_file():
    """Or for the same file of several stages, where several ranks are processes (mpi) or GPUs (multi_gpu).
    Exercises and the book's figures are named after what they are about."""
    places = collections.defaultdict(set)
    for path in map(pathlib.Path, SOURCES):
        if not {"exercises", "wasm"} & {*path.parts}:
            places[path.stem].add(re.sub(r"^0\d_\w+", "", str(path.parent)).replace("multi_gpu", "mpi"))
    del places["stage"]  # stage.h is what each stage.c sees
    assert not {name: where for name, where in places.items() if len(where) > 1}


# What is known, and may go: a reference and the room for its answer, processes and what they do together.
CIRCLES = {frozenset(pair.split()) for pair in (
    "reference_backward.c standard.c", "shards.c world_mpi.c", "shards.c ranks_bench.c", "processes.c ring.c",
    "processes.c tree.c")}


def test_no_new_pair_of_files_of_a_room_calls_each_other():
    pairs = uses()
    circles = {frozenset(pathlib.Path(file).name for file in pair) for pair in pairs
               if pair[::-1] in pairs and pair[0] != pair[1] and room_of(pair[0]) == room_of(pair[1])}
    assert not circles - CIRCLES


@pytest.mark.parametrize("folder", ["library/python/five_steps", "course", "reports", "book"])
def test_no_python_module_imports_itself_by_way_of_another(folder):
    paths = [*(ROOT / "common/products" / folder).glob("*.py")]
    graph = {}
    for path in paths:
        nodes = [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
        names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        for node in nodes:
            if isinstance(node, ast.ImportFrom):
                names |= {node.module} if node.module else {alias.name for alias in node.names}
        graph[path.stem] = names & {other.stem for other in paths} - {path.stem}
    while graph:
        leaves = {name for name, imports in graph.items() if not imports & {*graph}}
        assert leaves, f"a circle among {sorted(graph)}"
        graph = {name: imports for name, imports in graph.items() if name not in leaves}
