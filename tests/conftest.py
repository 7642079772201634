"""conftest.py: settings of pytest and Hypothesis.  What tests call is in helpers.py."""
import os
import shutil
import tempfile

import hypothesis
import pytest

# The same examples in every run, and no files of Hypothesis beside the sources.
os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY",
                      os.path.join(tempfile.gettempdir(), "hypothesis"))
hypothesis.settings.register_profile(
    "fixed", derandomize=True, database=None, deadline=None, print_blob=True, max_examples=50)
hypothesis.settings.register_profile(
    "long", hypothesis.settings.get_profile("fixed"), max_examples=2000)
hypothesis.settings.load_profile("long" if os.environ.get("LONG") else "fixed")


LONGEST = ("test_stages", "test_questions")  # they come first, so that nobody waits for them


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: item.module.__name__ not in LONGEST)
    for item in items:
        if item.get_closest_marker("long") and not os.environ.get("LONG"):
            item.add_marker(pytest.mark.skip(reason="make test-long runs it"))


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """Every test runs in an empty folder of its own."""
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    monkeypatch.undo()
    shutil.rmtree(tmp_path, ignore_errors=True)
