"""conftest.py: settings of pytest and Hypothesis, and the tests in C.  What tests call is in helpers.py."""
import os
import re
import shutil
import tempfile

import hypothesis
import pytest

from helpers import BUILD, HANG, ROOT, run

# The same examples in every run, and no files of Hypothesis beside the sources.
os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY",
                      os.path.join(tempfile.gettempdir(), "hypothesis"))
hypothesis.settings.register_profile(
    "fixed", derandomize=True, database=None, deadline=None, print_blob=True, max_examples=50)
hypothesis.settings.register_profile(
    "long", hypothesis.settings.get_profile("fixed"), max_examples=2000)
hypothesis.settings.load_profile("long" if os.environ.get("LONG") else "fixed")


# --- The tests in C: Test(suite, name) of a file is a test of the Criterion program. ---

class CriterionFile(pytest.File):
    def collect(self):
        for suite, name in re.findall(r"^Test\((\w+), (\w+)", self.path.read_text(encoding="utf-8"), re.M):
            yield CriterionTest.from_parent(self, name=f"{suite}/{name}")


class CriterionTest(pytest.Item):
    def runtest(self):
        said = run(BUILD / "tests", "--filter", self.name, cwd=ROOT, timeout=3 * HANG)
        assert "Tested: 1 | Passing: 1 " in said.err + said.out, said


def pytest_collect_file(file_path, parent):
    if file_path.match("test_*.c*"):
        return CriterionFile.from_parent(parent, path=file_path)


# --- All tests. ---

LONGEST = ("test_stages", "test_questions")  # they come first, so that nobody waits for them


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: item.path.stem not in LONGEST)
    for item in items:
        if item.name.endswith("_long") and os.environ.get("LONG"):  # longer then
            item.add_marker("long")
        if item.get_closest_marker("long") and not os.environ.get("LONG"):
            item.add_marker(pytest.mark.skip(reason="make test-long runs it"))


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """Every test runs in an empty folder of its own."""
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    monkeypatch.undo()
    shutil.rmtree(tmp_path, ignore_errors=True)


def pytest_unconfigure(config):
    """The last line."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter and (stats := reporter.stats):
        passed, failed, skipped = (sum(len(stats.get(kind, ())) for kind in kinds) for kinds in (
            ["passed"], ["failed", "error"], ["skipped"]))
        print(f"{passed} passed, {failed} failed, {skipped} skipped")
