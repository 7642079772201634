"""forms_test.py: last year's answer fails this year.

    forms_test.py [--build build]

For each exercise with several forms, and each pair of them: last year's file is no longer this
year's exercise, however this year's code is hidden in it; and last year's function is wrong in this
year's file.  Exit status: 0 as it should be; 1 not, with what is wrong."""
import argparse
import pathlib
import re
import shutil
import sys
import tempfile
import types

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "common" / "grader"))
from exercises import exercises, judge  # noqa: E402
from forms import formed, forms_of  # noqa: E402
from grader import Grader  # noqa: E402

HIDDEN_IN = ("online_step", "load_tile")  # where this year's code is also hidden in last year's, in C and CUDA
WRONG = []


def expect(true, text):
    if not true:
        WRONG.append(text)
        print(text, flush=True)


def clean(text):
    """A solution without the marks of its region."""
    text = re.sub(r" */\* skeleton\n.*? *solution end \*/\n", "", text, flags=re.S)
    return re.sub(r" */\* solution begin \*/\n", "", text)


def honest_files(mine):
    """This year's answer, as students may hand it in."""
    yield mine
    yield mine.replace("\n", "\r\n")
    yield mine.replace("    ", "\t").replace("{\n", "\n{\n")
    yield "".join(f"#include <{x}.h>\n" for x in (
        "assert", "complex", "math", "pthread", "stdio", "stdlib", "string", "time", "unistd")) + mine
    yield mine.replace("#include \"harness.h\"", "#include \"harness.h\"\n#ifdef _WIN32\n#include <windows.h>\n"
                       "#endif\n#define MINE(a, b) ((a) < (b) ? (a) : (b))\nenum { N_MINE = '\"' + '{' };\n"
                       "static const char *const said = \"main() asm { \\\" (\"; /* asm, main */\n"
                       "static inline float index_of(float *y1) { return (void)said, MINE(*y1, N_MINE); }\n"
                       "struct mine { int a[2]; } mine = {{1, 2}}; /* main( */")


def hidden(now, last):
    """Last year's file with this year's somewhere in it."""
    yield "as it is", last
    yield "behind #if 0", f"{last}\n#if 0\n{now}#endif\n"
    yield "behind #ifdef", f"{last}\n#ifdef NEVER\n{now}#endif\n"
    yield "in a comment", last + "".join(f"// {x}\n" for x in now.splitlines())
    yield "in a string", f'{last}\nstatic const char *const now = R"({now})";\n'
    yield "in strings", last + "static const char *const now =\n" + "".join(
        f"{chr(34)}{x.replace(chr(34), '').replace(chr(92), '')}{chr(34)}\n"
        for x in now.splitlines()) + ";\n"
    yield "in a macro", last + "#define NOW " + now.replace("\n", "\\\n") + "\n"
    yield "as an include", f"%:include \"harness.h\"\n/**/#include \"harness.h\"\n{last}\n#if 0\n{now}#endif\n"


def files(grader, exercise, source):
    """Last year's files of all forms and numbers against this year's."""
    for now in range(forms_of(source)):
        text = formed(source, now, lambda numbers: numbers[0])
        mine = clean(text)
        for honest in honest_files(mine):
            why = grader.another_form(exercise, text, honest)
            expect(not why, f"{exercise.name}, form {now}: its own answer: {why}")
        others = [(f"form {form}", clean(formed(source, form, lambda numbers: numbers[0])))
                  for form in range(forms_of(source)) if form != now]
        if "; one of" in source:
            others.append(("other numbers", clean(formed(source, now, lambda x: x[-1]))))
        for name, last in others:
            for how, handed_in in hidden(mine, last) if exercise.name in HIDDEN_IN else [("as it is", last)]:
                expect(grader.another_form(exercise, text, handed_in),
                       f"{exercise.name}: {name} passes as form {now}, {how}")


def functions(grader, exercise, source):
    """Last year's function in this year's file does not compile, or is wrong."""
    forms = range(forms_of(source))
    for now, last in [(x, y) for x in forms for y in forms]:
        folder = pathlib.Path(tempfile.mkdtemp(dir=grader.place))
        text = clean(formed(source, now, answer=last))
        why, _ = grader.build_worker(exercise, text.encode(), folder)
        failed = [why] if why else judge(
            grader.build, f"{grader.build}/exercises/solution/{exercise.name}.worker",
            str(folder / "worker"), "--quick", "--cpu", "3")[1].failed
        expect(bool(failed) == (now != last),
               f"{exercise.name}: form {last}'s function in form {now}: {len(failed)} cases fail")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build")
    build = parser.parse_args().build
    grader = Grader(types.SimpleNamespace(
        build=build, cc="cc -std=c11 -D_GNU_SOURCE -O1 -fopenmp",
        cxx="c++ -x c++ -std=c++20 -D_GNU_SOURCE -O1 -fopenmp", link="c++ -fopenmp"), [])
    try:
        varied = 0
        for exercise in exercises():
            source = exercise.solution.read_text(encoding="utf-8")
            if forms_of(source) > 1 or "; one of" in source:
                varied += 1
                files(grader, exercise, source)
                functions(grader, exercise, source)
        expect(varied >= 12, f"{varied} exercises vary")
    finally:
        shutil.rmtree(grader.place, ignore_errors=True)
    return 1 if WRONG else 0


if __name__ == "__main__":
    sys.exit(main())
