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
    "errno", "fcntl", "pthread", "sched", "signal", "stdio", "stdlib", "string", "sys/syscall", "time", "unistd"))
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
    "answers_before_it_works": (  # on the judge's socket
        "#include \"grader/protocol.h\"\n",
        "struct reply r = {.ok = 1}; if (write(SOCKET_FD, &r, sizeof r) == sizeof r) slow(p, a);\n"
        "        return;", "out of range, or not written"),
    "works_before_it_is_asked": (  # a thread waits for the inputs of the next run
        "static const struct problem *next_p; static struct problem next_copy;\n"
        "static struct arrays next_a; static volatile int done;\n"
        "static void *ahead(void *x)\n{\n"
        "    for (float last = 0;;) {\n"
        "        float first = ((const volatile float *)next_a.x)[0];\n"
        "        if (first != last) done = 0, slow(next_p, &next_a), done = 1, last = first;\n"
        "    }\n    return x;\n}\n",
        "pthread_t t; static int once;\n"
        "        if (!once++) next_copy = *p, next_p = &next_copy, next_a = *a,\n"
        "            pthread_create(&t, NULL, ahead, NULL);\n"
        "        slow(p, a); return;", "timed"),
    "leaves_work_to_a_constructor": (  # before main(), and a name that is no text
        "#include <sys/prctl.h>\n#include <sys/ptrace.h>\n"
        "__attribute__((constructor)) static void first(void)\n{\n"
        "    prctl(PR_SET_NAME, \"\\033[2J\\xff\\xfe\\n\");\n"
        "    if (fork() == 0 || !ptrace(PTRACE_ATTACH, getppid(), 0, 0)) for (;;) continue;\n}\n",
        "", "timed"),
    "opens_a_connection": (
        "#include <sys/socket.h>\n",
        "if (socket(AF_INET, SOCK_STREAM, 0) >= 0 || socket(AF_UNIX, SOCK_DGRAM, 0) >= 0) return;\n"
        "        struct sockaddr to = {AF_UNIX, \"/x\"};\n"
        "        if (!connect(socket(AF_UNIX, SOCK_STREAM, 0), &to, sizeof to) || errno != EPERM) return;",
        "timed"),
    "starts_as_cuda_does": (  # no attack: a socket without a name in the file system, a thread with a name
        "#include <sys/socket.h>\nstatic void *wait_for_it(void *x) { pause(); return x; }\n",
        "struct sockaddr name = {AF_UNIX, \"\\0cuda-test\"}; static pthread_t t;\n"
        "        static int s; if (!s) s = socket(AF_UNIX, SOCK_SEQPACKET, 0) + 1;\n"
        "        static int once; if (!once++ && (bind(s - 1, &name, sizeof name) || listen(s - 1, 1)\n"
        "            || pthread_create(&t, NULL, wait_for_it, NULL) || pthread_setname_np(t, \"waits\"))) return;",
        "timed"),
    "leaves_its_answers_in_a_file": (  # for its next run, or for a friend
        "#include <sys/socket.h>\n#include <sys/stat.h>\n",
        "static const char *const in[] = {\"/dev/shm\", \"/dev/mqueue\", \"/tmp\", \"/var/tmp\", \"/run\", \"\", "
        "\"/root\", \"/proc/self/cwd\", \"/proc/self/task\", \"/usr/lib\"};\n"
        "        for (int i = 0; i < 10; i++) {\n"
        "            char path[40]; int made; struct sockaddr name = {AF_UNIX, \"/tmp/answers\"};\n"
        "            snprintf(path, 40, \"%s/answers\", in[i]);\n"
        "            made = open(path, O_RDWR | O_CREAT, 0600) >= 0 || !mkdir(path, 0700) || !mkfifo(path, 0600)\n"
        "                || !symlink(path, path) || !bind(socket(AF_UNIX, SOCK_STREAM, 0), &name, sizeof name)\n"
        "                || open(in[i], O_RDWR | O_TMPFILE, 0600) >= 0;\n"
        "            remove(path); if (made) return;\n"
        "        }", "timed"),
    "writes_to_proc": (  # the judge's name and chances, its own limits, the system's settings
        "", "static const char *const of[] = {\"comm\", \"oom_score_adj\", \"coredump_filter\", \"clear_refs\"};\n"
        "        char path[60]; int n = 0;\n"
        "        for (int i = 0; i < 4; i++) {\n"
        "            snprintf(path, 60, \"/proc/self/%s\", of[i]); n += open(path, O_WRONLY) >= 0;\n"
        "            snprintf(path, 60, \"/proc/%d/%s\", getppid(), of[i]); n += open(path, O_WRONLY) >= 0;\n"
        "            snprintf(path, 60, \"/proc/%d/task/%d/%s\", getppid(), getppid(), of[i]);\n"
        "            n += open(path, O_WRONLY) >= 0;\n"
        "        }\n"
        "        if (n || open(\"/proc/sys/vm/overcommit_memory\", O_WRONLY) >= 0) return;", "timed"),
    "takes_memory": (  # more than the machine has; untouched, so that the test takes none
        "", "static void *volatile block;\n"
        "        for (int i = 0; i < 8; i++) if (!(block = malloc((size_t)1 << 30))) abort();", "Aborted"),
    "takes_memory_that_can_be_shared": (  # the same megabyte, 5000 times
        "#include <sys/mman.h>\n",
        "int file = memfd_create(\"x\", 0); syscall(SYS_ftruncate, file, 1 << 20);\n"
        "        for (int i = 0; i < 5000; i++)\n"
        "            if (mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, 0)\n"
        "                == MAP_FAILED) return;", "too much memory"),
    "stops_the_solution": ("", "if (!kill(0, SIGSTOP) || !kill(-1, SIGSTOP)) return;", "timed"),
}
# The same on a CUDA project, executed on the CPU: its kernel is launched by slow().
GPU_START = ROOT / "03_online_softmax/exercises/projects/gpu_softmax.cu"
ON_GPU = ["returns_last_times_result", "works_later_on_a_thread", "does_every_other_row",
          "writes_the_mean", "makes_the_inputs_easy", "writes_beside_the_output",
          "answers_before_it_works", "opens_a_connection", "starts_as_cuda_does",
          "leaves_its_answers_in_a_file", "writes_to_proc", "takes_memory",
          "takes_memory_that_can_be_shared"]
ONLY_ON_GPU = ["starts_as_cuda_does", "takes_memory_that_can_be_shared"]
TIMES, FAST = 3, "times as fast"  # a busy machine may slow the solution down, but not each time
MOST = 3.0  # times the solution, for those who do the work: they do what the solution does


def text(start_file, before, start):
    """The attack on the project."""
    source = start_file.read_text(encoding="utf-8")
    old = "static void softmax(const struct problem *p, const struct arrays *a)\n"
    if source.count(old) != 1:
        sys.exit("speed_attacks.py: the project has no softmax() any more")
    head, body = source.split(old)
    slow = body[:body.index("\n}\n") + 3]
    names = "" if "float *y = a->y;" in slow else \
        "    const float *x = (const float *)a->x;\n    float *y = (float *)a->y;\n    (void)x, (void)y;\n"
    body = body.replace("{\n", "{\n" + names, 1)
    behind = "    float *y = a->y;\n" if not names else names
    body = body.replace(behind, behind + (LARGE % start if start else ""), 1)
    text_ = (INCLUDES + head + "static void slow(const struct problem *p, const struct arrays *a)\n"
             + slow + before.replace("static void slow(const struct problem *p, const struct arrays "
                                     "*a);\n", "") + "\n" + old + body)
    return text_.replace("kept = malloc(", "kept = (float *)malloc(")


def compiled(place, build, name, cuda):
    """Why it does not compile, or None."""
    before, start, _ = ATTACKS[name]
    source = place / f"{name}{'.cu' if cuda else '.c'}"
    source.write_text(text(GPU_START if cuda else START, before, start), encoding="utf-8")
    compiler = "c++ -x c++ -std=c++20" if cuda else "cc -std=c11"
    objects = ["grader/worker.o", "grader/worker_host.o"] + ["cuda_on_cpu/executor.o"] * cuda
    done = subprocess.run(
        ["sh", "-c", f"{compiler} -D_GNU_SOURCE -O2 -w -fopenmp -Icommon -c {source} -o "
         f"{place}/{name}.o && c++ -fopenmp {place}/{name}.o "
         f"{' '.join(f'{build}/obj/common/{x}' for x in objects)} "
         f"-lm -lpthread -o {place}/{name}"], cwd=ROOT, capture_output=True, text=True, check=False)
    return f"does not compile: {done.stderr[:800]}" if done.returncode else None


def attempt(place, build, name, cuda):
    """What is wrong with an attack, or None.  cuda: on the CUDA project, in the jail of a GPU."""
    says, why = ATTACKS[name][2], compiled(place, build, name, cuda)
    if why:
        return why
    done = subprocess.run(
        [f"{build}/judge", f"{build}/exercises/solution/{'safe_row' if cuda else 'online_step'}.worker",
         f"{place}/{name}", "--quick", "--timed", "softmax:64x2048", "--runs", "5",
         *(["--executed", "--gpu-jail", "--skeleton"] if cuda else [])], cwd=ROOT, text=True,
        capture_output=True, check=False, timeout=240,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"})
    line = [x for x in done.stdout.split("\n") if x.startswith(("timed", "untimed"))]
    if done.returncode or len(line) != 1:
        return f"the judge ended with {done.returncode}: {done.stderr}"
    kind, *fields = line[0].split("\t")
    if says == "timed" and kind == "timed":
        return None if float(fields[3]) < MOST else f"{fields[3]} {FAST} as the solution"
    return None if says in fields[0] and kind == "untimed" else f"'{line[0]}', not '{says}'"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build")
    parser.add_argument("attack", nargs="*")
    options = parser.parse_args()
    wrong, place = 0, pathlib.Path(tempfile.mkdtemp(prefix="speed."))
    try:
        tries = [(x, False) for x in options.attack or ATTACKS if x not in ONLY_ON_GPU] + \
            [(x, True) for x in ON_GPU if not options.attack or x in options.attack]
        for name, cuda in tries:
            for _ in range(TIMES):
                why = attempt(place, options.build, name, cuda)
                if not why or FAST not in why:
                    break
            if why:
                wrong += 1
                print(f"{name}{' (CUDA)' * cuda}: {why}")
    finally:
        shutil.rmtree(place, ignore_errors=True)
    print(f"{len(tries)} attacks, {wrong} not as they should be")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
