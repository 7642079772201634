"""Grading a class: marks, feedback and the other files; clumsy hand-ins; what a machine lacks; the jail
that every submission runs in; who is like whom; the board."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import pytest

from helpers import BUILD, HANG, ROOT, SANITIZED, run, wait_for
from students import (MISCHIEF, MISTAKES, handed_out, includes, mischievous, solution, tool_words,
                      write_class)

import grade as grading
from builder import Shortage

pytestmark = pytest.mark.skipif(SANITIZED, reason="a sanitizer does not fit into the judge's limits")
TOOL_WORDS = tool_words()
GRADE = [sys.executable, str(ROOT / "common/products/course/grade.py")]


def grade(folder, *words, ex="online_step", want=0, env=None, **how):
    return run(*GRADE, "--submissions", folder, "--out", "marks", "--ex", ex, *TOOL_WORDS, *words,
               want=want, env=env, **how)


def grades():
    return json.loads(pathlib.Path("marks/grades.json").read_text(encoding="utf-8"))


def hand_in(student, name="online_step.c", text=None):
    path = pathlib.Path("class") / student / name
    path.parent.mkdir(parents=True, exist_ok=True)
    data = solution("online_step") if text is None else text
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def why(student, exercise="online_step"):
    mark = grades()["students"][student]["exercises"][exercise]
    return mark["marks"], mark["why"]


def test_class_has_its_marks_and_every_file_says_the_same(place):
    hand_in("right")
    hand_in("late")
    hand_in("too_late")
    hand_in("skeleton", text=handed_out("online_step"))
    hand_in("commented", text=handed_out("online_step") + "/* mine */\n")
    hand_in("half", text=solution("online_step").replace("if (x == -INFINITY && z == -INFINITY) return s;", ""))
    hand_in("bad", text=mischievous("crashes"))
    hand_in("none", name="other.c")
    pathlib.Path("late.csv").write_text("student,hours\nlate,25\ntoo_late,73\n")
    said = grade("class", "--late", "late.csv").out
    assert "7 of" not in said and "8 students, 1 exercises" in said
    assert [why(x)[0] for x in ("right", "late", "skeleton", "commented", "bad", "none")] == [10, 10, 0, 0, 0, 0]
    assert 0 < why("half")[0] < 10 and "softmax-mask_row" in grades()["students"]["half"]["exercises"][
        "online_step"]["failing_families"]
    assert why("skeleton")[1] == "the skeleton, unchanged" and why("none")[1] == "not handed in"
    totals = {x: y["marks"] for x, y in grades()["students"].items()}
    assert (totals["right"], totals["late"], totals["too_late"]) == (10, 8, 0)
    assert "<td>commented</td>" in pathlib.Path("marks/class.html").read_text(encoding="utf-8")
    for student, one in grades()["students"].items():
        scope = json.loads(pathlib.Path(f"marks/gradescope/{student}/results.json").read_text(encoding="utf-8"))
        said = pathlib.Path(f"marks/feedback/{student}.txt").read_text(encoding="utf-8")
        assert scope["score"] == one["marks"]
        assert [x["score"] for x in scope["tests"]] == [x["marks"] for x in one["exercises"].values()]
        assert all(x["why"] in said for x in one["exercises"].values())
    feedback = pathlib.Path("marks/feedback/commented.txt").read_text(encoding="utf-8")
    assert "\n    y should be " in feedback and "see it at home: make exercise 3 EX=online_step" in feedback


def test_clumsy_hand_ins_are_read_or_named(place):
    hand_in("-rf")
    hand_in("on Windows $x ü", text=b"\xef\xbb\xbf" + solution("online_step").replace("\n", "\r\n").encode())
    hand_in("deep", name="a/b/online_step.c")
    hand_in("empty", text="\n")
    hand_in("utf16", text=solution("online_step").encode("utf-16"))
    hand_in("large", text="/*" + " " * (70 << 10) + "*/")
    hand_in("renamed", name="Online-Step (1).c")
    hand_in("twice")
    hand_in("twice", name="older/online_step.c", text="int main(void) { return 0; }\n")
    hand_in("pipe").unlink()
    os.mkfifo("class/pipe/online_step.c")
    hand_in("link").unlink()
    os.symlink(place / "class/deep/a/b/online_step.c", "class/link/online_step.c")
    os.symlink(place / "class/deep", "class/linked")
    for unseen in ("a\u200bb", "a\u202eb"):
        hand_in(unseen, text="\n")
    (place / "class/bob-online_step.c").write_text(solution("online_step"))
    (place / "class/notes.txt").write_text("x")
    said = grade("class").out
    for student in ("-rf", "on Windows $x ü", "deep", "twice", "bob"):
        assert why(student) == (10, "right"), student
    for student, words in (("empty", "the file is empty"), ("utf16", "UTF-16"), ("large", "larger than 64 KiB"),
                           ("renamed", "'Online-Step (1).c' is not called online_step.c"), ("pipe", "is no file"),
                           ("link", "is a link"), ("linked", "not handed in")):
        assert why(student)[0] == 0 and words in why(student)[1], why(student)
    assert "'notes.txt' is neither a student's folder" in said and "linked: the folder is a link" in said
    assert {"a?b", "a?b~"} <= set(grades()["students"])
    assert "2 files are called online_step.c" in pathlib.Path("marks/feedback/twice.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("words,says", [
    (["--ex", "nosuch"], "EX: no stage or exercise 'nosuch'"),
    (["--submissions", ""], "SUBMISSIONS: make grade SUBMISSIONS=dir"),
    (["--submissions", "nowhere"], "SUBMISSIONS: 'nowhere'"),
    (["--submissions", "marks"], "SUBMISSIONS: nothing in"),
    (["--out", "class/out"], "OUT: 'class/out' lies in the folder"),
    (["--out", "late.csv"], "OUT: nothing can be written"),
    (["--late", "late.csv"], "line 1: 'x' is not 'student,hours'"),
])
def test_bad_requests_are_refused_in_one_line_before_the_work(place, words, says):
    hand_in("a")
    (place / "marks").mkdir()
    (place / "late.csv").write_text("x\n")
    done = grade("class", *words, want=2)
    assert says in done.err and done.err.count("\n") == 1 and not done.out


def test_a_job_has_a_time_limit_and_what_fails_is_named():
    def late():
        time.sleep(600)

    def broken():
        raise ValueError("no such thing")

    def short():
        raise Shortage("no room")

    jobs = {"broken": broken, "short": short, "right": lambda: [1, "x"], "ended": lambda: os.kill(os.getpid(), 9)}
    files = len(os.listdir("/proc/self/fd"))
    found = {key: (kind, result) for key, kind, result in grading.run_jobs(jobs, 2, seconds=600)}
    assert len(os.listdir("/proc/self/fd")) == files  # a class has more jobs than a process may have files
    assert [x[1] for x in grading.run_jobs({"late": late}, 2, seconds=1)] == ["late"]
    assert found["right"] == ("done", [1, "x"])
    assert found["broken"] == ("failed", "ValueError: no such thing")
    assert found["short"] == ("shortage", "no room") and found["ended"][0] == "failed"


def test_without_room_nobody_has_a_mark(place):
    hand_in("a")
    (place / "small").mkdir()
    words = [*GRADE, "--submissions", "class", "--out", "marks", "--ex", "online_step", *TOOL_WORDS]
    done = subprocess.run(["unshare", "-rm", "sh", "-c", 'mount -t tmpfs -o size=1m none small || exit 77; '
                           'TMPDIR=$PWD/small exec "$@"', "sh", *words], capture_output=True, text=True, check=False)
    if done.returncode in (1, 77) and "grade:" not in done.stderr:
        pytest.skip("no small disk can be mounted here")
    assert done.returncode == 3 and "MiB of room left" in done.stderr and not pathlib.Path("marks/grades.json").exists()


def test_strict_grades_in_a_complete_jail_only(place):
    hand_in("a")
    fake = place / "build"
    fake.mkdir()
    (fake / "libharness.a").symlink_to(BUILD / "libharness.a")
    def kernel_with(answer):
        (fake / "jail").write_text(f'#!/bin/sh\n[ "$1" = --complete ] && exit {answer}\nexec {BUILD}/jail "$@"\n')
        (fake / "jail").chmod(0o755)

    kernel_with(2)
    done = grade("class", "--strict", "--build", str(fake), want=3)
    assert "the jail is not complete" in done.err and not pathlib.Path("marks/grades.json").exists()
    assert "isolation on this machine: no new processes" in grade("class", "--build", str(fake)).out
    kernel_with(0)
    assert "isolation" not in grade("class", "--strict", "--build", str(fake)).out
    assert grades()["isolation"].endswith("files hidden")


def test_term_ends_all_and_leaves_nothing(place):
    hand_in("a", text=mischievous("macros_without_end"))
    (place / "tmp").mkdir()
    words = [*GRADE, "--submissions", "class", "--out", "marks", "--ex", "online_step", *TOOL_WORDS]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                          env={**os.environ, "TMPDIR": str(place / "tmp")}) as grader:
        wait_for(lambda: list((place / "tmp").glob("judge.*/*/expanded")))
        grader.send_signal(signal.SIGTERM)
        said = grader.communicate(timeout=HANG)[1].decode()
    assert grader.returncode == 128 + signal.SIGTERM and "Traceback" not in said
    assert not list((place / "tmp").iterdir())


# --- the jail ---

HEAD = includes("errno fcntl pthread sched signal stdio stdlib string sys/ipc sys/mman sys/resource sys/shm "
                "sys/socket sys/stat sys/syscall unistd") + """
static void *idle(void *x) { return x; }
int main(int argc, char **argv) { const char *other = argv[1]; (void)other; (void)idle; return (%s) ? 1 : 0; }
"""
DOORS = {  # true where a door is open
    "fork": "fork() >= 0", "vfork": "vfork() >= 0", "thread": "!pthread_create(&(pthread_t){0}, NULL, idle, NULL)",
    "socket": "socket(AF_INET, SOCK_STREAM, 0) >= 0", "unix_socket": "socket(AF_UNIX, SOCK_STREAM, 0) >= 0",
    "kill_parent": "!kill(getppid(), 0)", "kill_all": "!kill(-1, 0)", "session": "setsid() >= 0",
    "read_a_secret": "open(other, O_RDONLY) >= 0", "read_passwd": "open(\"/etc/passwd\", O_RDONLY) >= 0",
    "read_proc": "open(\"/proc/1/environ\", O_RDONLY) >= 0", "list_folder": "open(\"/home\", O_RDONLY | O_DIRECTORY) >= 0",
    "write_a_secret": "open(other, O_WRONLY) >= 0", "truncate": "!truncate(other, 0)",
    "write_elsewhere": "open(\"/tmp/written_by_a_student\", O_CREAT | O_WRONLY, 0600) >= 0",
    "shared_memory": "open(\"/dev/shm/x\", O_CREAT | O_RDWR, 0600) >= 0 || shmget(IPC_PRIVATE, 4096, 0600) >= 0",
    "link_for_the_judge": "!symlink(other, \"mine/y\")",
    "pipe_elsewhere": "!mkfifo(\"/tmp/pipe_of_a_student\", 0600)", "chmod": "!chmod(other, 0777)",
    "run_another": "!access(\"/bin/true\", X_OK) && execl(\"/bin/true\", \"true\", NULL) && errno != EACCES",
    "other_core": "!sched_setaffinity(0, sizeof(cpu_set_t), &(cpu_set_t){{1}})",
    "limits": "!setrlimit(RLIMIT_CPU, &(struct rlimit){1000, 1000})", "memfd": "memfd_create(\"x\", 0) >= 0",
    "ptrace": "!syscall(SYS_ptrace, 16, getppid(), 0, 0)", "mount": "!syscall(SYS_unshare, 0x10000000)",
    "memory": "mmap(NULL, (size_t)600 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED",
}


@pytest.fixture(scope="module")
def door(tmp_path_factory):
    """Compiles a door; all of them in one folder."""
    folder = tmp_path_factory.mktemp("doors")

    def make(name, what):
        source = folder / f"{name}.c"
        source.write_text(HEAD % what)
        run("cc", "-w", "-D_GNU_SOURCE", source, "-o", folder / name, "-lpthread")
        return folder / name
    return make


@pytest.mark.parametrize("name", DOORS)
def test_jail_shuts_the_door(place, door, name):
    if run(BUILD / "jail", "--complete", want=None).code:
        pytest.skip("this kernel has no complete jail")
    program, secret = door(name, DOORS[name]), place / "secret"
    secret.write_text("x")
    secret.chmod(0o600)
    (place / "mine").mkdir()
    run(BUILD / "jail", "--cpu", "5", "--memory", "512", "--core", "--write", place / "mine", "--", program,
        secret)
    assert secret.read_text() == "x" and not pathlib.Path("/tmp/written_by_a_student").exists()


def test_jail_ends_what_computes_or_writes_without_end(place, door):
    spin = door("spin", "({ for (volatile int i = 0;; i++) continue; 0; })")
    write = door("write", "({ int f = open(\"y\", O_CREAT | O_WRONLY, 0600); static char z[1 << 20]; signal(SIGXFSZ, "
                 "SIG_IGN); long n = 0; while (write(f, z, sizeof z) > 0) n++; n > 16; })")
    (place / "mine").mkdir()
    run(BUILD / "jail", "--cpu", "1", "--memory", "512", "--write", place / "mine", "--", spin,
        want=(-signal.SIGXCPU, -signal.SIGKILL))
    run(BUILD / "jail", "--compiler", "--cpu", "5", "--memory", "512", "--read", write.parent, "--write", place / "mine",
        "--", write, cwd=place / "mine")
    assert run(BUILD / "jail", "--write", want=2).err.startswith("usage")


# --- who is like whom, and the board ---

def test_similar_names_copies_and_not_what_the_task_makes_alike(place):
    hand_in("anna", name="one_loop.c", text=solution("one_loop"))
    hand_in("ben", name="one_loop.c", text=solution("one_loop").replace("m_new", "largest").replace("l_old", "before"))
    hand_in("carl", name="one_loop.c", text=handed_out("one_loop"))
    hand_in("last/dora", name="one_loop.c", text=solution("one_loop"))
    os.rename("class/last", "last")
    said = run(sys.executable, ROOT / "common/products/course/similar.py", "--submissions", "class", "--last", "last").out
    lines = said.splitlines()
    assert any("anna" in x and "ben" in x for x in lines) and any("last: dora" in x for x in lines)
    assert any("the solution" in x for x in lines) and "carl" not in said
    assert int(lines[0].split("%")[0]) >= int(lines[-2].split("%")[0])


def test_board_adds_projects_hides_names_and_shares_places(place):
    def mark(points, marks, timed=None):
        return {"marks": marks, "points": points, "why": "", "timed": timed}
    (place / "grades.json").write_text(json.dumps({"points": 10, "students": {
        x: {"marks": m, "alias": f"alias{x}", "exercises": {"merge": mark(10, m)}} for x, m in (("<a>", 10), ("b", 4))}}))
    (place / "projects.json").write_text(json.dumps({"points": 40, "students": {
        x: {"marks": m, "alias": f"alias{x}", "exercises": {"fast": mark(40, m, {"share": 12, "solution": 24})}}
        for x, m in (("b", 20), ("c", 30))}}))
    board = [sys.executable, ROOT / "common/products/course/board.py", "--marks", place, "--out", place / "board.html"]
    run(*board)
    page = (place / "board.html").read_text(encoding="utf-8")
    assert "50 points" in page and "aliasb" in page and "&lt;a&gt;" in page and ">b<" not in page
    assert page.index("aliasc") < page.index("aliasb") < page.index("alias&lt;a&gt;")  # 30, 24, 10
    assert "<td>24</td>" in page and "<small>50%</small>" in page and "script" not in page
    run(*board, "--names")
    assert ">b<" in (place / "board.html").read_text(encoding="utf-8")
    assert "has no marks" in run(*board[:2], "--marks", place / "none", "--out", place / "b.html", want=2).err
    (place / "grades.json").write_text("[]")
    assert "is not what make grade writes" in run(*board, want=2).err


@pytest.mark.long
def test_a_hundred_students_have_their_marks(place):
    write_class(place / "class", 100)
    grade("class", ex="", timeout=None)
    for student, one in grades()["students"].items():
        name = student.rsplit("_", 1)[0]
        lost = {x for x, mark in one["exercises"].items() if mark["marks"] < mark["points"]}
        assert lost == ({MISTAKES[name][0]} if name in MISTAKES else {"online_step"} if name in MISCHIEF else set()), student
        assert name not in MISCHIEF or one["exercises"]["online_step"]["marks"] <= 2, student


def test_gradescope_counts_late_days_and_says_when_the_machine_failed(place):
    """The autograder's folder, with the repository in the place of the instructor's, whose build stays
    as it is: the script asks for other flags."""
    (place / "source").mkdir()
    (place / "submission").mkdir()
    (place / "source/instructor").symlink_to(ROOT)
    (place / "submission/online_step.c").write_text(solution("online_step"))
    (place / "submission_metadata.json").write_text(json.dumps({
        "users": [{"email": "a@b.c"}], "created_at": "2026-01-02T12:00:00+00:00",
        "assignment": {"due_date": "2026-01-01T11:00:00+00:00"}}))
    old = "".join(f" -o {BUILD.name}/{made}" for made in ("libharness.a", "jail", "config"))
    (place / "make").write_text(f'#!/bin/sh\nexec {shutil.which("make")} BUILD={BUILD.name}{old} "$@"\n')
    (place / "make").chmod(0o755)
    env = {"AUTOGRADER": place, "EX": "online_step", "PATH": f"{place}:{os.environ['PATH']}"}
    script = ROOT / "common/products/course/adapters/gradescope_run.sh"
    run("bash", script, env={**env, "ARCH_FLAGS": "-march=native"})
    found = json.loads((place / "results/results.json").read_text(encoding="utf-8"))
    assert found["score"] == 8 and "25 hours late" in found["output"] and found["tests"][0]["status"] == "passed"
    run("bash", script, env={**env, "EX": "nosuch"}, want=1)
    assert "score" not in json.loads((place / "results/results.json").read_text(encoding="utf-8"))
