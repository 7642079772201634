"""form_attacks.py: files that hold this year's exercise and do not use it.

    form_attacks.py [--build build]

Each is the skeleton of this year, and beside it a whole program of its own that answers the judge: an
answer from another year, say.  The attack is how that program comes to run in place of the given one.
None may earn anything.  Exit status: 0 none does; 1 one does, and which."""
import argparse
import pathlib
import shutil
import sys
import tempfile
import types

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "common" / "grader"))
from exercises import exercises  # noqa: E402
from forms import formed  # noqa: E402
from forms_test import clean  # noqa: E402
from grader import Grader  # noqa: E402
from submissions import Student  # noqa: E402

# A worker of its own, which knows softmax.  It calls the system itself, so that it can also run
# where the C library is not ready.
WORKER = """#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
{protocol}
static void last_softmax(const float *x, float *y, size_t n)
{{
    float m = -INFINITY, l = 0;
    for (size_t j = 0; j < n; j++) m = x[j] > m ? x[j] : m;
    for (size_t j = 0; j < n; j++) l += x[j] == -INFINITY ? 0 : expf(x[j] - m);
    for (size_t j = 0; j < n; j++) y[j] = l == 0 ? 0 : expf(x[j] - m) / l;
}}
static void take_over(void)
{{
    static struct request q;
    char *at = (char *)syscall(SYS_mmap, NULL, (size_t)1 << 25, 3, MAP_SHARED, REGION_FD, 0);
    while (syscall(SYS_read, SOCKET_FD, &q, sizeof q) == sizeof q) {{
        static struct reply r = {{.ok = 1}};
        const float *x = (float *)(at + q.span[AT_X].offset);
        float *y = (float *)(at + q.span[AT_Y].offset + q.guard);
        for (size_t i = 0; q.kind == COMPUTE && i < q.problem.rows; i++)
            last_softmax(x + i * q.problem.cols, y + i * q.problem.cols, q.problem.cols);
        syscall(SYS_write, SOCKET_FD, &r, sizeof r);
    }}
    syscall(SYS_exit_group, 0);
}}
"""
FIRST = "static void first(void) { take_over(); }\n"
MAIN = "int main(int argc, char **argv) {"
# name: what stands behind the worker, in C
ATTACKS = {
    "constructor": "__attribute__((constructor)) " + FIRST,
    "in_init_array": FIRST + '__attribute__((section(".init_array"), used)) '
                     "static void (*const begin)(void) = first;\n",
    "in_preinit_array": FIRST + '__attribute__((section(".preinit_array"), used)) '
                        "static void (*const begin)(void) = first;\n",
    "in_ctors": FIRST + '__attribute__((section(".ctors"), used)) '
                "static void (*const begin)(void) = first;\n",
    "by_assembler": "__attribute__((used)) " + FIRST +
                    '__asm__(".pushsection .init_array,\\"aw\\"\\n.quad first\\n.popsection");\n',
    "at_the_end": "__attribute__((destructor)) " + FIRST,
    "ifunc": "static void *choose(void) { take_over(); return NULL; }\n"
             'void chosen(void) __attribute__((ifunc("choose")));\nvoid (*pointer)(void) = chosen;\n',
    "another_main_by_label": 'int last(int n, char **v) __asm__("main");\nint ' + MAIN[4:-2] +
                             ' __asm__("unused");\nint last(int n, char **v) { take_over(); return 0; }\n',
    "another_main_by_pragma": "#pragma redefine_extname main unused\n#pragma redefine_extname last main\n"
                              "int last(int n, char **v) { take_over(); return 0; }\n",
    "another_main_by_operator": '_Pragma("redefine_extname main unused") '
                                '_Pragma("redefine_extname last main")\n'
                                "int last(int n, char **v) { take_over(); return 0; }\n",
    "another_main_by_a_headers_macro": "#include <sys/cdefs.h>\n"
        "int __REDIRECT(__CONCAT(ma,in), (int argc, char **argv), unused);\n"
        "int __REDIRECT(last, (int argc, char **argv), main);\n"
        "int last(int n, char **v) { take_over(); return 0; }\n",
    "replaces_read": "ssize_t read(int f, void *to, size_t n) { take_over(); return 0; }\n",
    "replaces_read_weakly": "__attribute__((weak)) ssize_t read(int f, void *to, size_t n) "
                            "{ take_over(); return 0; }\n",
    "replaces_the_start": "int __libc_start_main(void) { take_over(); return 0; }\n",
    "replaces_a_hook_of_the_start": "void __gmon_start__(void) { take_over(); }\n",
    "replaces_what_the_harness_calls": "int fstat(int f, struct stat *s) { take_over(); return 0; }\n",
    "in_main": None,
    "in_a_function_that_is_given": None,
}


def attack(exercise, name):
    """This year's skeleton, spoiled."""
    text, behind = exercise.skeleton(), ATTACKS[name]
    protocol = (ROOT / "common/grader/protocol.h").read_text(encoding="utf-8")
    worker = WORKER.format(protocol=protocol.replace('#include "harness.h"\n', ""))
    if name == "in_main":
        text = text.replace(MAIN, MAIN + " take_over();")
    if name == "in_a_function_that_is_given":
        old = "    const float *x = a->x;\n"
        text = text.replace(old, "    take_over();\n" + old)
    begin = text.index("#include \"harness.h\"\n") + len("#include \"harness.h\"\n")
    return text[:begin] + "#include <sys/stat.h>\n" + worker + (behind or "") + text[begin:]


def in_a_namespace(exercise):
    """This year's code where nobody calls it, and last year's in its place.  In CUDA, compiled as C++."""
    last = clean(formed(exercise.solution.read_text(encoding="utf-8"), 1))
    head, given = exercise.skeleton().split("struct tile {")
    given, rest = given.split("GPU_VARIANT(")
    answer = last.split("struct tile {")[1].split("GPU_VARIANT(")[0]
    return f"{head}namespace unused {{\nstruct tile {{{given}}}\nstruct tile {{{answer}GPU_VARIANT({rest}"


def marked(grader, exercise, text):
    folder = pathlib.Path(tempfile.mkdtemp(dir=grader.place))
    student = Student()
    (folder / exercise.file.name).write_text(text, encoding="utf-8")
    student.files[exercise.name] = [folder / exercise.file.name]
    return grader.try_to_mark(exercise, student)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build")
    parser.add_argument("--verbose", action="store_true")
    options, wrong = parser.parse_args(), 0
    grader = Grader(types.SimpleNamespace(
        build=options.build, cc="cc -std=c11 -D_GNU_SOURCE -O1 -fopenmp",
        cxx="c++ -x c++ -std=c++20 -D_GNU_SOURCE -O1 -fopenmp", link="c++ -fopenmp"), [])
    grader.course = {"secret": "a secret", "draw": 4}
    step, tile = (next(x for x in exercises() if x.name == y) for y in ("online_step", "load_tile"))
    tries = [(step, name, attack(step, name)) for name in ATTACKS]
    tries.append((tile, "in_a_namespace", in_a_namespace(tile)))
    try:
        for exercise, name, text in tries:
            mark = marked(grader, exercise, text)
            wrong += mark.marks != 0
            if mark.marks or options.verbose:
                print(f"{exercise.name}, {name}: {mark.marks} points: {mark.why}")
    finally:
        shutil.rmtree(grader.place, ignore_errors=True)
    print(f"{len(tries)} attacks, {wrong} earn something")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
