"""gpu_check.py: does the judge work on this GPU, and does cheating earn nothing?  (make projects-check)

    gpu_check.py --build build --nvcc "nvcc ..." --gpu-link "..." [--cc ...] [--csv F] [NAME ...]

Compiles the programs of gpu_submissions.py for the GPU as hand-ins are compiled, judges them one after
the other, and prints a line for each: points, whether that is as it should be, what the judge said.
Programs that need a newer GPU are named and left out.  A NAME picks programs whose name contains it.
If an honest program fails, it is tried with less and less of the jail, and what it says is printed:
that tells what this GPU's driver needs.  --csv: the lines are also written into a file, for the table of
notes/instructor.md.

Exit status: 0 all as they should be; 1 not; 77 skipped: no GPU."""
import argparse
import concurrent.futures
import csv
import datetime
import os
import pathlib
import re
import shutil
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "common" / x) for x in ("grader", "reports")]
import gpu_submissions as programs  # noqa: E402
import measurements  # noqa: E402
import projects  # noqa: E402

RUNS, ATTACK_WORK = 3, "softmax:1024x65536"
COLUMNS = "project program points of said ok runs seconds machine driver date commit".split()


class Entry:
    """A program.  says: what the judge says, or least and most points."""

    def __init__(self, project, name, text, says, work=None):
        self.project, self.name, self.text, self.says = project, name, text, says
        self.work = work or project.work
        self.folder = self.why = None


def asked(what):
    """What nvidia-smi says of the GPU."""
    return measurements.output_of(["nvidia-smi", f"--query-gpu={what}", "--format=csv,noheader", "-i",
                                   "0"]).strip()


def entries():
    softmax, attention = (projects.projects([x])[0] for x in ("gpu_softmax", "gpu_attention"))
    yield Entry(softmax, "as handed out", softmax.skeleton(), (0, 0))
    yield Entry(softmax, "fast: a row in one cluster", programs.fast_softmax(), (30, 40))
    yield Entry(attention, "as handed out", attention.skeleton(), (0, 0))
    yield Entry(attention, "faster: tensor cores", programs.fast_attention(), (1, 60))
    yield Entry(attention, "every other key", programs.attention_without_keys(), "a wrong row")
    for name, (_, _, says) in programs.SOFTMAX_ATTACKS.items():
        yield Entry(softmax, name, programs.softmax_attack(name),
                    (0, 0) if says == programs.SLOW else says, ATTACK_WORK)


def build(grader, entry):
    entry.folder = pathlib.Path(tempfile.mkdtemp(dir=grader.place))
    (entry.folder / entry.project.file.name).write_text(entry.text, encoding="utf-8")
    entry.why, log = grader.build_for_gpu(entry.project, entry.folder)
    if entry.why and isinstance(entry.says, tuple):
        entry.why += "\n" + log[:3000]


def judged(grader, entry, *options):
    """The judge's verdict, or None; and what went wrong."""
    return projects.judged(
        grader.build, entry.project, str(entry.folder / "gpu_worker"), 7, 4, "--gpu",
        f"{grader.build}/exercises/projects/copier.gpu_worker", "--timed", entry.work, "--runs",
        str(RUNS), *options)


def explain(grader, entry):
    """What does the program say with less of the jail?"""
    for jail, name in ((2, "the whole jail"), (1, "files are not hidden"), (0, "no jail")):
        verdict, why = judged(grader, entry, "--jail", str(jail))
        said = verdict.said[:3] if verdict else [why]
        failed = len(verdict.failed) if verdict else -1
        print(f"    {name}: {failed} cases fail; it said: {' | '.join(said)}", flush=True)
        if verdict and not verdict.failed:
            print(f"    {verdict.timed or verdict.untimed}", flush=True)


def outcome(grader, entry, base):
    """Points, and what the judge said."""
    if entry.why:
        return 0.0, "refused: " + entry.why
    verdict, why = judged(grader, entry)
    if not verdict:
        return 0.0, "no verdict: " + why
    if verdict.failed:
        return 0.0, f"{len(verdict.failed)} of {len(verdict.cases)} cases are wrong: " \
            + " | ".join([verdict.failed[0].why, *verdict.said[:2]])
    if not verdict.timed:
        return 0.0, verdict.untimed
    share = verdict.timed["share"]
    base.setdefault((entry.project.name, entry.work), share)
    first = base.get((entry.project.name, entry.project.work), share)
    return entry.project.marks(share, first), \
        f"{share:.3g} % of {verdict.timed['name']}, {verdict.timed['median'] * 1e3:.4g} ms, " \
        f"ceiling {verdict.timed['ceiling']:.4g}, clock {verdict.timed['mhz_after']:.0f} MHz"


def check(grader, entry, base):
    """A line of CSV, which is also printed; is it as it should be?"""
    begin = time.monotonic()
    points, said = outcome(grader, entry, base)
    good = entry.says[0] <= points <= entry.says[1] and "%" in said \
        if isinstance(entry.says, tuple) else points == 0 and bool(re.search(entry.says, said))
    seconds = time.monotonic() - begin
    print(f"{entry.project.name:14} {entry.name:31} {points:5.1f} of {entry.project.points}  "
          f"{'ok ' if good else 'BAD'}  {said}  ({seconds:.1f} s)", flush=True)
    return [entry.project.name, entry.name, points, entry.project.points, said.split("\n")[0],
            int(good), RUNS, f"{seconds:.1f}"], good


def needs_newer_gpu(entry):
    """Does the variant ask for more than this GPU has?  Says so."""
    wanted = re.search(r"\.least_arch = (\d+)", entry.text)
    there = asked("compute_cap").replace(".", "")
    if not wanted or not there.isdigit() or int(wanted[1]) <= int(there):
        return False
    print(f"{entry.project.name:14} {entry.name:31} skipped: it needs sm_{wanted[1]}, this is sm_{there}")
    return True


def write_csv(path, gpu, lines):
    here = [gpu, asked("driver_version"), datetime.date.today().isoformat(), measurements.commit_here()]
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *(x + here for x in lines)])


def main():
    parser = argparse.ArgumentParser(description="the judge on this GPU")
    for name in ("cc", "cxx", "link", "nvcc", "gpu-link"):
        parser.add_argument(f"--{name}", default="")
    parser.add_argument("--build", default="build")
    parser.add_argument("--csv")
    parser.add_argument("name", nargs="*")
    options = parser.parse_args()
    gpu = projects.gpu_name()
    if not gpu or not options.nvcc:
        print("projects-check: skipped: no GPU was found, or no nvcc")
        return 77
    grader = projects.ProjectGrader(options, [])
    chosen = [x for x in entries() if not options.name or any(y in x.name for y in options.name)]
    chosen = [x for x in chosen if not needs_newer_gpu(x)]
    try:
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            list(pool.map(lambda x: build(grader, x), chosen))
        begin, bad, base, lines = time.monotonic(), 0, {}, []
        print(f"{gpu}: {len(chosen)} programs", flush=True)
        for entry in chosen:
            line, good = check(grader, entry, base)
            lines.append(line)
            if not good and not bad and isinstance(entry.says, tuple) and not entry.why:
                explain(grader, entry)
            bad += not good
    finally:
        shutil.rmtree(grader.place, ignore_errors=True)
    if options.csv:
        write_csv(options.csv, gpu, lines)
    print(f"{len(chosen)} programs, {bad} not as they should be; {time.monotonic() - begin:.0f} s")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
