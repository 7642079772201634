"""students.py: a class to try the grader on: right answers, known mistakes, and mischief.

    students.py [--exercises "merge ..."] write DIR [STUDENT ...]
    students.py clumsy DIR                   those who hand in online_step strangely
    students.py expect OUT                   does each have the marks it should have?

Every student hands in all solutions, one of them spoiled.  MISTAKES are the planted bugs of
tests/planted in the form they take in an exercise, and others; the family of cases named
beside each must see it.  MISCHIEF must get nothing for the exercise.  CLUMSY students know
the answer, and get what can be read of it."""
import argparse
import json
import os
import pathlib
import sys
import xml.etree.ElementTree as xml

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "common" / "grader"))
from exercises import exercises  # noqa: E402
from forms import formed  # noqa: E402

# name: (exercise, what stood there, what stands there now, family that must fail)
MISTAKES = {
    "barrier_missing_after_load": (
        "load_tile", "    __syncthreads(); /* the tile is complete */\n", "",
        "attention-random"),
    "barrier_missing_before_overwrite": (
        "load_tile", "    __syncthreads(); /* nobody reads the previous tile any more */\n", "",
        "attention-random"),
    "causal_off_by_one": (
        "causal_mask", "i + 1 + seqlen_k", "i + 2 + seqlen_k", "attention-random"),
    "causal_top_left": (
        "causal_mask", "i + 1 + seqlen_k - seqlen_q", "i + 1", "attention-random"),
    "exponents_apart": (
        "one_loop", "expf(s - m_new)", "expf(-m_new) * expf(s)", "attention-shift_200"),
    "inf_minus_inf": (
        "safe_row", "    if (m == -INFINITY) m = 0;\n", "", "softmax-mask_row"),
    "l_from_one": ("safe_row", "float l = 0;", "float l = 1;", "softmax-random"),
    "l_not_rescaled": (
        "one_loop", "l = l * correction + weight", "l = l + weight", "attention-ascending"),
    "last_chunk_dropped": (
        "ragged_tiles", "first < keys.end; first", "first + Bc <= keys.end; first", "attention-random"),
    "lse_in_base_2": ("one_loop", "m + logf(l)", "m + log2f(l)", "attention-random"),
    "masked_v_leaks": (
        "masked_sum", "        if (s_i[j] == -INFINITY) continue;\n", "",
        "attention-nan_v"),
    "max_from_flt_min": (
        "one_loop", "float m = -INFINITY", "float m = 1.17549435e-38f", "attention-shift_200"),
    "max_from_minus_10000": (
        "one_loop", "float m = -INFINITY", "float m = -10000", "attention-low"),
    "max_from_zero": ("one_loop", "float m = -INFINITY", "float m = 0", "attention-shift_200"),
    "merge_unit_at_zero": (
        "merge", "x->m > y->m ? x->m : y->m;", "fmaxf(0, fmaxf(x->m, y->m));",
        "attention-shift_200"),
    "nan_hidden_by_guard": (
        "one_loop", "l == 0 ? 0 : o_i[d] / l", "l > 0 ? o_i[d] / l : 0", "attention-nan_q"),
    "o_not_rescaled": (
        "push_tile", "    for (int d = 0; d < head_dim_v; d++) o[d] *= correction;\n", "",
        "attention-ascending"),
    "offset_in_16_bits": (
        "safe_row", "softmax_row(x + i * p->cols", "softmax_row(x + (uint16_t)(i * p->cols * 64)",
        "softmax-random"),
    "p_rounded_before_the_sum": (
        "one_loop", "float weight = expf(s - m_new);",
        "float weight = bfloat_to_float(float_to_bfloat(expf(s - m_new)));",
        "attention-random"),
    "padding_at_score_0": (
        "ragged_tiles", "n_keys);\n    }\n}\n\n/* One query.",
        "n_keys);\n        x->l += (float)(Bc - n_keys) * expf(-x->m);\n    }\n}\n\n/* One query.",
        "attention-shift_20"),
    "rescale_after_update": (
        "one_loop", "        float correction", "        m = m_new;\n        float correction",
        "attention-ascending"),
    "rescale_wrong_sign": (
        "one_loop", "expf(m - m_new)", "expf(m_new - m)", "attention-ascending"),
    "scale_from_head_dim_v": (
        "score_row", "p->scale * dot", "dot / sqrtf((float)p->head_dim_v)", "attention-random"),
    "scale_missing": ("score_row", "p->scale * dot", "dot", "attention-random"),
    "scale_twice": ("score_row", "p->scale * dot", "p->scale * p->scale * dot",
                    "attention-random"),
    "tail_read_past_the_end": (
        "ragged_tiles", "keys.end - first < Bc ? keys.end - first : Bc", "Bc", "attention-random"),
    "wrong_kv_head": ("one_loop", "p->heads_q / group;", "p->heads_kv;", "attention-random"),
    "zero_weight_skipped": (
        "masked_sum", "        if (s_i[j] == -INFINITY) continue;\n",
        "        if (p_i[j] == 0) continue;\n", "attention-nan_v_far"),
    # not from tests/planted
    "comparator_wants_no_nan": (
        "softmax_row", "y[j] = expf(x[j]) / l", "y[j] = NAN", "softmax-random"),
    "mean_overflows": ("running_mean", "(x / (float)k - mu / (float)k)", "(x - mu) / (float)k",
                       "mean-opposite"),
    "log_of_a_probability": ("log_row", "x[j] - m - log_l", "logf(expf(x[j] - m) / l)",
                             "logsoftmax-wide"),
    "memory_of_the_last_row": ("safe_row", "float l = 0;", "static float l;", "softmax-random"),
    "input_overwritten": ("safe_row", "l += expf(x[j] - m)",
                          "l += ((float *)x)[j] = expf(x[j] - m)", "softmax-random"),
    "writes_behind_the_row": ("safe_row", "    float l = 0;", "    y[n] = 1;\n    float l = 0;",
                              "softmax-random"),
    "sum_not_started": (
        "weighted_sum", "    for (size_t d = 0; d < p->head_dim_v; d++) o_i[d] = 0;\n", "",
        "attention-random"),
    "parts_of_equal_weight": ("combine", "parts[t].l * expf(parts[t].m - m)", "parts[t].l",
                              "attention-ascending"),
}

# name: (exercise, what is put in front of a function of the solution, why, as the grader says)
FIRST = "static struct state online_step(struct state s, float x)\n{\n"
MAIN = "int main(int argc, char **argv) { return stage_main(argc, argv, &stage); }"
MISCHIEF = {
    "ends_with_exit_0": (FIRST, FIRST + "    exit(0);\n", "ended by itself"),
    "prints_checks_passed": (MAIN, "int main(void)\n{\n    puts(\"162 checks passed, 0 "
                             "failed, 0 skipped\");\n    return 0;\n}", "ended by itself"),
    "talks_to_the_judge": (MAIN, "int main(void)\n{\n    static char ok[48] = {1};\n"
                           "    while (read(4, ok, 1) == 1) memset(ok, 1, 48), write(4, ok, 48);"
                           "\n    return 0;\n}", "element not written"),
    "includes_the_solution": ("#include \"harness.h\"", "#include \"solutions/online_step.c\"\n"
                              "#define main other", "does not compile"),
    "includes_it_by_its_path": (
        "#include \"harness.h\"", f"#include \"{ROOT}/03_online_softmax/exercises/solutions/"
        "online_step.c\"\n#if 0", "which is not allowed"),
    "brings_its_own_harness": (MAIN, "int stage_main(int c, char **v, const struct stage *s)\n"
                               "{\n    return c + !v + !s;\n}\n" + MAIN, "ended by itself"),
    "crashes": (FIRST, FIRST + "    *(volatile int *)0 = 1;\n", "crashed: Segmentation fault"),
    "never_ends": (FIRST, FIRST + "    for (volatile int i = 0;; i++) continue;\n",
                   "took too long"),
    "does_not_compile": (FIRST, FIRST + "    return s +;\n", "does not compile"),
    "forks_without_end": (FIRST, FIRST + "    while (fork() >= 0) continue;\n    abort();\n",
                          "crashed"),
    "eats_memory": (FIRST, FIRST + "    for (;;) memset(malloc(1 << 26), 1, 1 << 26);\n",
                    "crashed: Segmentation fault"),
    "shouts": (FIRST, FIRST + "    for (int i = 0; i < 100; i++) fputs(\"162 checks passed, 0 "
               "failed\\n\", i % 2 ? stderr : stdout);\n    return s;\n", "error above"),
    "exits_before_main": (FIRST, "__attribute__((constructor)) static void f(void) { exit(0); }\n"
                          + FIRST, "runs code before main()"),
    "replaces_the_library": (FIRST, "float expf(float x) { return x - x + 1; }\nvoid *memcpy"
                             "(void *a, const void *b, size_t n) { return b && n ? a : a; }\n"
                             "int memcmp(const void *a, const void *b, size_t n) { return !a "
                             "+ !b + !n; }\n" + FIRST, "NaN where a number"),
    "closes_its_connection": (FIRST, FIRST + "    for (int i = 0; i < 64; i++) close(i);\n"
                              "    for (;;) sleep(1000);\n", "closed its connection"),
    # U+2028 ends a line for Python's splitlines()
    "forges_the_judges_lines": (FIRST, FIRST + "    fputs(\"x\\u2028case\\u2028done\\u2028said\\n\","
                                " stderr), abort();\n", "crashed: Aborted"),
    "starts_threads_without_end": (
        FIRST, "static void *f(void *x) { for (;;) sleep(1000); return x; }\n" + FIRST +
        "    pthread_attr_t a;\n    pthread_attr_init(&a), pthread_attr_setstacksize(&a, 16384);"
        "\n    for (pthread_t t;;) pthread_create(&t, &a, f, &t);\n",
        "started too many threads"),
    # right if a door that should be shut is open
    "executes_the_solution": (
        FIRST, FIRST + "    execl(\"" + str(ROOT / "build/exercises/solution/online_step.worker") +
        "\", \"x\", NULL);\n    return s;\n", "error above"),
    "reads_the_solution": (
        FIRST, FIRST + "    FILE *f = fopen(\"" +
        str(ROOT / "03_online_softmax/exercises/solutions/online_step.c") +
        "\", \"r\");\n    if (!f) return s;\n    fclose(f);\n", "error above"),
    "tries_the_doors": (
        FIRST, FIRST + "    if (shmget(IPC_PRIVATE, 4096, 0600) < 0 && syscall(SYS_ftruncate, 3, 0) < 0 &&\n"
        "        setpriority(PRIO_USER, 0, 19) < 0 && prctl(PR_SET_PDEATHSIG, 0) < 0 &&\n"
        "        memfd_create(\"x\", 0) < 0 && mkfifo(\"/tmp/written_by_a_student\", 0600) < 0 &&"
        "\n        socket(AF_INET, SOCK_STREAM, 0) < 0 && setsid() < 0 && vfork() < 0 &&\n"
        "        sched_setaffinity(getppid(), 8, \"1234567\") < 0 && kill(getppid(), 0) < 0)\n"
        "        return s;\n", "error above"),
    "includes_a_file_of_the_system": ("#include \"harness.h\"", "#include \"/etc/passwd\"\n"
                                      "#include \"harness.h\"", "which is not allowed"),
    "includes_itself_twice": ("#include \"harness.h\"", "#include __FILE__\n#include __FILE__\n",
                              "does not compile"),
    "macros_without_end": ("#include \"harness.h\"", "#define A_0 1,\n" + "".join(
        f"#define A_{i + 1} A_{i} A_{i} A_{i} A_{i} A_{i} A_{i} A_{i} A_{i}\n"
        for i in range(16)) + "int a[] = { A_16 };", "does not compile"),
    "assembles_nonsense": ("#include \"harness.h\"", "__asm__(\".incbin \\\"/dev/zero\\\"\");\n"
                           "#include \"harness.h\"", "does not compile"),
    "a_gigabyte_of_code": ("#include \"harness.h\"", "char big[1 << 30] = {1};\n"
                           "#include \"harness.h\"", "does not compile"),
    "sleeps": (FIRST, FIRST + "    for (;;) sleep(1000);\n", "took too long"),
    "kills_its_parent": (FIRST, FIRST + "    kill(getppid(), 9);\n    return s;\n",
                         "error above"),
    "writes_to_the_harness": (
        FIRST, FIRST + f"    FILE *f = fopen(\"{ROOT}/build/written_by_a_student\", \"w\");\n"
        "    if (f) fputs(\"x\", f), fclose(f);\n    abort();\n", "crashed"),
}
SOLUTION = f"{ROOT}/03_online_softmax/exercises/solutions/online_step.c"
ASM = "__asm__(\".pushsection .rodata\\nsecret: .incbin \\\"%s\\\"\\n.byte 0\\n.popsection\");\n"
MISCHIEF.update({
    # A list of included files that comes from another run of the compiler than the object.
    "includes_when_compiled_again": (
        "#include \"harness.h\"", f"#if __has_include(\"depends\")\n#include \"{SOLUTION}\"\n"
        "#else\n#include \"harness.h\"\n#define expf(x) (0 * (x))\n", "NaN where"),
    "includes_a_classmate": (
        "#include \"harness.h\"", "#include \"@CLASS@/knows_everything/online_step.c\"\n"
        "#if 0", "which is not allowed"),
    "assembles_a_file_of_the_system": (
        "#include \"harness.h\"", "__asm__(\".include \\\"/etc/passwd\\\"\");\n"
        "#include \"harness.h\"", "does not compile"),
    "embeds_a_file_of_the_system": (
        "#include \"harness.h\"", "#include \"harness.h\"\nextern const char secret[];\n" +
        ASM % "/etc/passwd" + "__attribute__((constructor)) static void tell(void) "
        "{ fputs(secret, stderr), abort(); }\n", "does not compile"),
    "embeds_a_solution": (
        "#include \"harness.h\"", "#include \"harness.h\"\nextern const char secret[];\n" +
        ASM % SOLUTION + "__attribute__((constructor)) static void tell(void) "
        "{ fputs(secret, stderr), abort(); }\n", "does not compile"),
    "fakes_a_full_disk": (FIRST, "#error No space left on device\n" + FIRST,
                          "does not compile"),
    "kills_itself": (FIRST, FIRST + "    raise(SIGKILL);\n    abort();\n", "crashed: Aborted"),
    "stuffs_its_pipe": (
        FIRST, "static void *f(void *x) { static char z[4096]; for (;;) write(2, z, 4096); "
        "return x; }\n" + FIRST + "    static pthread_t t;\n    if (!t) pthread_create(&t, NULL, "
        "f, NULL);\n    return s;\n", "error above"),
    "stuffs_its_socket": (
        FIRST, FIRST + "    static char z[4096];\n    for (;;) write(4, z, 4096);\n",
        "element not written"),
    # right if it was given a large file to fill
    "fills_the_shared_file": (
        FIRST, FIRST + "    struct stat file;\n    if (fstat(3, &file) || file.st_size < 1 << 27) "
        "return s;\n", "error above"),
})
# Those who earn something on a kernel that cannot hide files.
NEED_HIDING = ("reads_the_solution", "embeds_a_file_of_the_system", "embeds_a_solution",
               "assembles_a_file_of_the_system")
COMMENTED = [f"skeletons_with_comment_{i}" for i in range(1, 6)]
# What some mistakes are worth, to the tenth: it follows from the families of cases.
EXACT = {"mean_overflows": 6.7, "inf_minus_inf": 9, "masked_v_leaks": 6.7, "never_ends": 0,
         "crashes": 0}
# Words that their feedback must hold.
FEEDBACK = {"sum_not_started": "o[0, 0, 0, 0]: NaN: read before written?",
            "memory_of_the_last_row": "\n    y should be "}
EXTRA = "".join(f"#include <{name}.h>\n" for name in (
    "fcntl", "pthread", "sched", "signal", "stdio", "stdlib", "string", "sys/ipc", "sys/mman",
    "sys/prctl", "sys/resource", "sys/shm", "sys/socket", "sys/stat", "sys/syscall",
    "unistd"))

# folder: (what becomes of the text, file name, marks, a part of what the grader says)
CLUMSY = {
    "writes on Windows $x_$ ü": (
        lambda text: b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode() + b"// \xff\r\n",
        "online_step.c", 10, "right"),
    "-rf": (str.encode, "online_step.c", 10, "right"),
    "a\nline\udcff": (str.encode, "sub/folder/online_step.c", 10, "right"),
    "not a word": (lambda text: b"\n", "online_step.c", 0, "the file is empty"),
    "utf-16": (lambda text: text.encode("utf-16"), "online_step.c", 0, "no plain text"),
    "large": (lambda text: None, "online_step.c", 0, "larger than 256 KiB"),
    "pipe": (os.mkfifo, "online_step.c", 0, "is no file"),
    "link": (os.symlink, "online_step.c", 0, "is a link"),
    "folder": (os.mkdir, "online_step.c", 0, "not handed in"),
    "own name": (str.encode, "Online-Step (1).c", 0, "'Online-Step (1).c' is not called"),
    "deep": (str.encode, "x/" * 1000 + "online_step.c", 0, "not handed in"),
    "twice": (str.encode, "old/online_step.c", 10, "right"),
}


def clean(text):
    """A solution as a student would hand it in: without the marks of the regions."""
    out, region = [], ""
    for line in formed(text).splitlines():
        word = line.strip()
        if word == "/* solution begin */":
            continue
        if word == "/* skeleton":
            region = word
        elif word == "solution end */":
            region = ""
        elif not region:
            out.append(line)
    return "\n".join(out) + "\n"


def spoil(text, old, new, student):
    if text.count(old) < 1:
        sys.exit(f"students.py: {student}: the solution has no '{old}' any more")
    return text.replace(old, new)


def texts(student):
    """exercise -> text, of all exercises."""
    out = {x.name: clean(x.solution.read_text(encoding="utf-8")) for x in exercises()}
    if student in MISTAKES:
        name, old, new, _ = MISTAKES[student]
        out[name] = spoil(out[name], old, new, student)
        if "bfloat" in new:
            out[name] = out[name].replace('#include "harness.h"', '#include "problem/half.h"\n'
                                          '#include "harness.h"')
    elif student in MISCHIEF:
        old, new, _ = MISCHIEF[student]
        out["online_step"] = spoil(EXTRA + out["online_step"], old, new, student)
        if new.count("#if") > new.count("#endif"):
            out["online_step"] += "#endif\n"
    elif student == "hands_in_skeletons":
        out = {x.name: x.skeleton() for x in exercises()}
    elif student in COMMENTED:
        out = {x.name: f"/* {student} */\n" + x.skeleton() for x in exercises()}
    elif student == "hands_in_nothing":
        out = {}
    elif student != "knows_everything":
        sys.exit(f"students.py: nobody is called '{student}'")
    return out


def everybody():
    return ["knows_everything", "hands_in_skeletons", "hands_in_nothing", *COMMENTED, *MISTAKES,
            *MISCHIEF]


def write(folder, students, names):
    files = {x.name: x.file.name for x in exercises() if not names or x.name in names}
    for student in students or everybody():
        place = folder / student
        place.mkdir(parents=True, exist_ok=True)
        for name, text in texts(student).items():
            if name in files:
                text = text.replace("@CLASS@", str(folder.resolve()))
                (place / files[name]).write_text(text, encoding="utf-8")


def write_clumsy(folder):
    """As CLUMSY says; `twice` hands in something else too, the folder `deep` is too deep."""
    text = texts("knows_everything")["online_step"]
    for student, (encode, name, _, _) in CLUMSY.items():
        place = folder / os.fsencode(student).decode(errors="surrogateescape")
        here, parts = os.getcwd(), pathlib.PurePath(name).parts
        place.mkdir(parents=True)
        os.chdir(place)
        for part in parts[:-1]:
            os.mkdir(part)
            os.chdir(part)
        if encode in (os.mkfifo, os.mkdir):
            encode(parts[-1])
        elif encode is os.symlink:
            os.symlink(ROOT / "03_online_softmax/exercises/solutions/online_step.c", parts[-1])
        else:
            with open(parts[-1], "wb") as file:
                data = encode(text)
                file.write(data or b"")
                if data is None:
                    file.truncate(1 << 40)  # a terabyte of nothing
        os.chdir(here)
    (folder / "twice/older").mkdir()
    (folder / "twice/older/online_step.c").write_text("int main(void) { return 0; }\n")
    (folder / "bob-online_step.c").write_text(text)
    (folder / "--online_step.c").write_text(text)


def shown(student):
    """A name as the grader prints it."""
    return student.replace("\n", "?").replace("\udcff", "?")


def complaint(student, name, mark, hidden=True):
    """What is wrong with a mark, or None."""
    spoiled = MISTAKES[student][0] if student in MISTAKES else \
        "online_step" if student in MISCHIEF else None
    marks, points, why = mark["marks"], mark["points"], mark["why"]
    for clumsy, (_, _, right, words) in CLUMSY.items():
        if student == shown(clumsy):
            return None if marks == right and words in why else f"{marks} of {points}: {why}"
    if student in NEED_HIDING and not hidden:
        return None
    if student in ("hands_in_skeletons", "hands_in_nothing", *COMMENTED):
        return f"{marks} marks for nothing" if marks else None
    if why == "not handed in" and student != "knows_everything":
        return f"{marks} marks for nothing" if marks else None
    if name != spoiled:
        return None if marks == points and why == "right" else f"{marks} of {points}: {why}"
    if student in EXACT and marks != EXACT[student]:
        return f"{marks} marks, not {EXACT[student]}"
    if student in MISTAKES:
        family = MISTAKES[student][3]
        if marks >= points:
            return "full marks for a mistake"
        return None if family in mark["failing_families"] else \
            f"{family} does not see it, only {mark['failing_families']}"
    # not written, or a wrong state: some families may be right by luck, but few
    if marks > 0.2 * points or (MISCHIEF[student][2] != "error above" and marks):
        return f"{marks} of {points} for mischief"
    return None if MISCHIEF[student][2] in why else f"'{MISCHIEF[student][2]}' is not in '{why}'"


def forms(out, grades):
    """What is wrong with the other files: a student in each, with the same marks."""
    names = list(grades["students"])
    top = xml.parse(out / "junit.xml").getroot()
    if [suite.get("name") for suite in top] != names:
        yield "junit.xml: not a testsuite for each student"
    for suite in top:
        failed = sum(case.find("failure") is not None for case in suite)
        if suite.tag != "testsuite" or suite.get("failures") != str(failed) or \
                suite.get("tests") != str(len(suite)) or suite.get("errors") != "0":
            yield f"junit.xml: {suite.get('name')}: the counts are wrong"
    for name, grade in grades["students"].items():
        scope = json.loads((out / "gradescope" / name / "results.json").read_text())
        marks = [x["marks"] for x in grade["exercises"].values()]
        if scope["score"] != grade["marks"] or [x["score"] for x in scope["tests"]] != marks:
            yield f"gradescope/{name}/results.json: other marks"
        for test in scope["tests"]:
            if test["status"] != ("passed" if test["score"] == test["max_score"] else "failed") \
                    or test["visibility"] != "visible" or not test["output"]:
                yield f"gradescope/{name}/results.json: {test}"
        said = (out / "feedback" / f"{name}.txt").read_text()
        if FEEDBACK.get(name, "") not in said:
            yield f"feedback/{name}.txt does not say '{FEEDBACK[name]}'"
        if "nologin" in said or "root:" in said or "solution begin" in said:
            yield f"feedback/{name}.txt holds a file that nobody should read"
        for exercise in grade["exercises"].values():
            if exercise["why"] not in said:
                yield f"feedback/{name}.txt does not say {exercise['why']}"


def expect(out):
    wrong = seen = 0
    grades = json.loads((out / "grades.json").read_text())
    for text in forms(out, grades):
        wrong += 1
        print(text)
    for student, grade in grades["students"].items():
        for name, mark in grade["exercises"].items():
            seen += 1
            text = complaint(student, name, mark, "hidden" in grades["isolation"])
            if text:
                wrong += 1
                print(f"{student} {name}: {text}")
    print(f"{seen} marks, {wrong} not as expected")
    return 1 if wrong or not seen else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("verb", choices=["write", "clumsy", "expect"])
    parser.add_argument("path", type=pathlib.Path)
    parser.add_argument("student", nargs="*")
    parser.add_argument("--exercises", default="")
    options = parser.parse_args()
    if options.verb == "clumsy":
        write_clumsy(options.path)
        return 0
    if options.verb == "write":
        write(options.path, options.student, options.exercises.split())
        return 0
    return expect(options.path)


if __name__ == "__main__":
    sys.exit(main())
