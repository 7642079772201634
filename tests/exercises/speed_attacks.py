"""speed_attacks.py: the known ways of looking fast, tried on the judge.

    speed_attacks.py [--build build]

Each attack is the project online_softmax as it was handed out, with something put in front of
its work.  It is right in all cases of the suite, whose rows are short: it cheats where the clock
runs.  None may be timed as if it had done the work.  Exit status: 0 none earns anything; 1 one
does, and which."""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
START = ROOT / "03_online_softmax/exercises/projects/online_softmax.c"
LARGE = "    if (p->rows * p->cols > 100000) {\n        %s\n    }\n"
INCLUDES = "".join(f"#include <{x}.h>\n" for x in (
    "fcntl", "pthread", "sched", "signal", "stdio", "stdlib", "string", "sys/syscall", "time", "unistd"))
THREAD = """static const struct problem *late_p; static struct arrays late_a;
static void slow(const struct problem *p, const struct arrays *a);
static struct problem late_copy;
static void *later(void *x) { %s return x; }
static void start_later(const struct problem *p, const struct arrays *a)
{
    pthread_t t;
    late_copy = *p, late_p = &late_copy, late_a = *a;
    pthread_create(&t, NULL, later, NULL);
    pthread_detach(t);
}
"""
# name: (before the function, at its start, what the judge says)
ATTACKS = {
    # the clock is the judge's: redefining ours changes nothing, and the work is done
    "patches_the_timer": (
        "int clock_gettime(clockid_t c, struct timespec *t) { (void)c; t->tv_sec = 1; "
        "t->tv_nsec = 1; return 0; }\n", "", "timed"),
    "returns_last_times_result": (
        "static float *kept; static size_t n_kept;\n",
        "if (kept && n_kept == p->rows * p->cols) { memcpy(y, kept, n_kept * 4); return; }\n"
        "        slow(p, a); n_kept = p->rows * p->cols; kept = malloc(n_kept * 4); "
        "memcpy(kept, y, n_kept * 4); return;", "a wrong row"),
    "knows_inputs_by_their_first_numbers": (
        "static float *kept, first[4];\n",
        "if (kept && !memcmp(first, x, 4)) { memcpy(y, kept, p->rows * p->cols * 4); return; }\n"
        "        slow(p, a); memcpy(first, x, 16); if (!kept) kept = malloc(p->rows * p->cols * 4); "
        "memcpy(kept, y, p->rows * p->cols * 4); return;", "timed"),
    "works_later_on_a_thread": (
        THREAD % "usleep(3000); slow(late_p, &late_a);", "start_later(p, a); return;",
        "out of range, or not written"),
    "does_every_other_row": (
        "", "struct problem one = *p; one.rows = 1;\n        for (size_t i = 0; i < p->rows; i += 2) "
        "{ struct arrays b = *a; b.x = x + i * p->cols; b.y = y + i * p->cols; slow(&one, &b); }\n"
        "        return;", "out of range, or not written"),
    "writes_the_mean": (
        "", "for (size_t i = 0; i < p->rows * p->cols; i++) y[i] = 1.0f / (float)p->cols;\n"
        "        return;", "a wrong row"),
    "makes_the_inputs_easy": (
        "", "for (size_t i = 0; i < p->rows * p->cols; i++) ((float *)x)[i] = 0, "
        "y[i] = 1.0f / (float)p->cols;\n        return;", "an input was overwritten"),
    "reads_the_judges_memory": (
        "", "char path[40]; snprintf(path, 40, \"/proc/%d/mem\", getppid());\n"
        "        int f = open(path, O_RDONLY); if (f >= 0) slow(p, a); return;",
        "out of range, or not written"),
    "takes_another_core": (  # who got it would be wrong
        "", "cpu_set_t all; memset(&all, 255, sizeof all);\n"
        "        if (!sched_setaffinity(0, sizeof all, &all)) return;", "timed"),
    "leaves_a_thread_running": (
        THREAD % "for (volatile int i = 0;; i++) continue;",
        "static int once; if (!once++) start_later(p, a);", "timed"),
    "writes_beside_the_output": ("", "slow(p, a); y[p->rows * p->cols] = 1; return;",
                                 "something beside an output"),
    "stops_the_solution": ("", "if (!kill(0, SIGSTOP) || !kill(-1, SIGSTOP)) return;", "timed"),
}
MOST = 3.0  # times the solution, for those who do the work: they do what the solution does


def text(before, start):
    """The attack on the project."""
    source = START.read_text(encoding="utf-8")
    old = "static void softmax(const struct problem *p, const struct arrays *a)\n"
    if source.count(old) != 1:
        sys.exit("speed_attacks.py: the project has no softmax() any more")
    head, body = source.split(old)
    slow = body[:body.index("\n}\n") + 3]
    body = body.replace("    float *y = a->y;\n", "    float *y = a->y;\n" +
                        (LARGE % start if start else ""), 1)
    return (INCLUDES + head + "static void slow(const struct problem *p, const struct arrays *a)\n"
            + slow + before.replace("static void slow(const struct problem *p, const struct arrays "
                                    "*a);\n", "") + "\n" + old + body)


def attempt(place, build, name):
    """What is wrong with an attack, or None."""
    before, start, says = ATTACKS[name]
    (place / f"{name}.c").write_text(text(before, start), encoding="utf-8")
    done = subprocess.run(
        ["sh", "-c", f"cc -std=c11 -D_GNU_SOURCE -O2 -w -fopenmp -Icommon -c {place}/{name}.c -o "
         f"{place}/{name}.o && c++ -fopenmp {place}/{name}.o {build}/obj/common/grader/worker.o "
         f"-lm -lpthread -o {place}/{name}"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        return f"does not compile: {done.stderr[:800]}"
    done = subprocess.run(
        [f"{build}/judge", f"{build}/exercises/solution/online_step.worker", f"{place}/{name}",
         "--quick", "--timed", "softmax:64x2048", "--runs", "5"], cwd=ROOT, text=True,
        capture_output=True, check=False, timeout=240,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"})
    line = [x for x in done.stdout.split("\n") if x.startswith(("timed", "untimed"))]
    if done.returncode or len(line) != 1:
        return f"the judge ended with {done.returncode}: {done.stderr}"
    kind, *fields = line[0].split("\t")
    if says == "timed" and kind == "timed":
        return None if float(fields[3]) < MOST else f"{fields[3]} times as fast as the solution"
    return None if says in fields[0] and kind == "untimed" else f"'{line[0]}', not '{says}'"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build")
    parser.add_argument("attack", nargs="*")
    options = parser.parse_args()
    wrong, place = 0, pathlib.Path(tempfile.mkdtemp(prefix="speed."))
    try:
        for name in options.attack or ATTACKS:
            why = attempt(place, options.build, name)
            if why:
                wrong += 1
                print(f"{name}: {why}")
    finally:
        shutil.rmtree(place, ignore_errors=True)
    print(f"{len(options.attack or ATTACKS)} attacks, {wrong} not as they should be")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
