"""run.py: all tests: the Criterion program, then pytest.

    python3 tests/run.py BUILD [PYTEST OPTION ...]

Prints what fails, what was skipped and why, and ends with `N passed, N failed, N skipped` over
both.  A run that dies before its end is a failure.  LONG=1 adds the tests that take minutes.
"""
import collections
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree

# More than there are cores, because tests wait for processes and browsers.
JOBS = os.environ.get("JOBS", str(len(os.sched_getaffinity(0)) + 2))


def criterion(build):
    """The names of the tests that passed and failed, and the reasons of the skips."""
    tap = build / "tests.tap"
    tap.unlink(missing_ok=True)
    done = subprocess.run([build / "tests", f"-j{JOBS}", f"--tap={tap}"], text=True,
                          errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    said = [line for line in done.stdout.splitlines() if not line.startswith("[====]")]
    print("\n".join(said), flush=True)
    passed, failed, skipped = [], [], []
    lines = tap.read_text(errors="replace").splitlines() if tap.exists() else []
    for line in lines:
        if found := re.match(r"(not )?ok - (\S+)(?:.*# SKIP *(.*))?", line):
            bad, name, reason = found.groups()
            if reason is not None:
                skipped.append((reason or "no reason given", name))
            else:
                (failed if bad else passed).append(name)
    if not lines or (done.returncode and not failed):
        failed.append(f"the Criterion program died, exit status {done.returncode}")
    return passed, failed, skipped


def python(build, options):
    """The same of pytest."""
    report = build / "pytest.xml"
    report.unlink(missing_ok=True)
    parallel = ["-n", JOBS] if importlib.util.find_spec("xdist") else []
    done = subprocess.run([sys.executable, "-m", "pytest", pathlib.Path(__file__).parent,
                           f"--junitxml={report}", "--durations=5", *parallel, *options])
    passed, failed, skipped = [], [], []
    cases = xml.etree.ElementTree.parse(report).iter("testcase") if report.exists() else []
    for case in cases:
        name = f"{case.get('classname')}::{case.get('name')}"
        if (skip := case.find("skipped")) is not None:
            skipped.append((skip.get("message"), name))
        elif case.find("failure") is not None or case.find("error") is not None:
            failed.append(name)
        else:
            passed.append(name)
    if done.returncode not in (0, 1) or (done.returncode and not failed):
        failed.append(f"pytest died, exit status {done.returncode}")
    return passed, failed, skipped


def main():
    build = pathlib.Path(sys.argv[1])
    # A thread that waits must not burn the core that another one needs.
    os.environ.update(BUILD=sys.argv[1], OMP_WAIT_POLICY="passive",
                      PYTHONPYCACHEPREFIX=str(build.resolve() / "pycache"))
    passed, failed, skipped = map(sum, zip(*(criterion(build), python(build, sys.argv[2:]))),
                                  ([], [], []))
    reasons = collections.defaultdict(list)
    for reason, name in skipped:
        reasons[reason].append(name)
    if skipped:
        print("skipped, not counted as passed:")
    for reason, names in sorted(reasons.items()):
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        print(f"  {reason}: {', '.join(names[:3])}{more}")
    for name in failed:
        print(f"failed: {name}")
    print(f"{len(passed)} passed, {len(failed)} failed, {len(skipped)} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
