"""test_coverage.py: notes/coverage.md: every row is there, every file and test it names exists."""
import re

from helpers import ROOT

ROWS = ("A1 A2 A3 A4 B1 B2 B3 B4 B5 C1 C2 C3 C4 C5 C6 C7 D1 D2 D3 D4 D5 D6 D7 D8 D9 D10 D11 D12 "
        "E1 E2 E3 E3b E4 E5 E6 F1 F2 F3 F4 F5 H1 H2 H3 H6 H7 H8 H9 H10 H11 H12 G").split()
LINES = (ROOT / "notes/coverage.md").read_text(encoding="utf-8").splitlines()
TABLE = [line for line in LINES if line.startswith("| ")]
SOURCES = {path: path.read_text(encoding="utf-8") for path in (ROOT / "tests").glob("test_*.*")}


def test_exists(name):
    """`suite/name` is a Criterion test, `test_file.py::name` one of pytest."""
    file, is_python, function = name.partition("::")
    if is_python:
        return f"\ndef {function}(" in SOURCES.get(ROOT / "tests" / file, "")
    suite, _, test = name.partition("/")
    return any(re.search(rf"Test\({suite}, {test}\b", text) for text in SOURCES.values())


test_exists.__test__ = False


def test_files_and_tests_that_it_names_exist():
    names = re.findall(r"`([^`\s]+)`", "\n".join(TABLE))
    files = [name for name in names if "/" in name and "." in name and "::" not in name]
    tests = [name for name in names if "::" in name or ("/" in name and "." not in name)]
    assert len(files) > 50 and len(tests) > 50
    missing = [name for name in files if not (ROOT / name).exists()]
    assert not missing + [name for name in tests if not test_exists(name)]


def test_every_row_is_there_with_its_code_and_its_note():
    rows = {line.split()[1]: line for line in TABLE}
    for row in ROWS:
        assert re.search(r"`[^`]+\.(c|h|cu|py)`", rows[row]) and "`notes/" in rows[row], row
