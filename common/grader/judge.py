"""judge.py: is a file that somebody wrote right?  The same at home and for marks.

1.  Of the file the judge takes the student's part (forms.py) and puts it into the code that was
    handed out.  What stands elsewhere does not count.
2.  It compiles that in a jail (jail.c), as the student's lines, so that the compiler's messages
    have the student's line numbers.  Behind the preprocessor the given code must read as it did,
    and the student's may not ask for what a computation does not need (FORBIDDEN).
3.  It links the object with the harness: that is a stage's program.  The jail runs it, once for
    each case: `run --q q.npy ... --o o.npy`.  The cases and the right answers (cases.py) are never
    in that process.  Nothing that the program prints or returns counts.

    judge = Judge(options);  verdict = judge.verdict(exercise, bytes, cases)"""
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time

import numpy as np

from cases import cases_of
from forms import parts_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMPILE_S, CASE_S, WALL_S, MEMORY_MIB = 30, 3, 20, 1024
MOST_HANGS, MOST_TEXT = 2, 8 << 20
# What no exercise needs, behind the preprocessor: another name for a function, code before main().
FORBIDDEN = re.compile(
    r"\b(main|stage_main|_*asm_*|redefine_extname)\b|__attribute(?:__)?\s*\(\((?!\s*_*(?:always_inline|"
    r"noinline|aligned|unused|hot|const|pure|optimize|target|vector_size|may_alias|fallthrough)\b)|"
    r"\[\[\s*_*(?:gnu|clang|using)|#\s*pragma\s+(?!omp|GCC (?:ivdep|unroll|optimize)|unroll|STDC)")
STRING = re.compile(r"""'(?:[^'\\\n]|\\.)+'|"(?:[^"\\\n]|\\.)*\"""")
NOT_CODE = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
DIRECTIVE = re.compile(r"(?:#|%:|\?\?=)\s*(?:line\b|\d+\s+\"|/[*/])")  # a comment there hides what follows
# Functions of libraries that a computation may call; and what the given code calls.
CALLS = re.compile(
    r"_?_?(exp|expm1|log|log1p|pow|sqrt|cbrt|fma|fabs|fmax|fmin|fdim|fmod|ldexp|frexp|scalbn|scalbln|ilogb|"
    r"logb|floor|ceil|round|lround|llround|rint|lrint|nearbyint|trunc|remainder|copysign|nextafter|tanh|sinh|"
    r"cosh|sin|cos|tan|atan|atan2|erf|erfc|hypot|exp2|exp10|log2|log10|isnan|isinf|finite)[fl]?|"
    r"mem(cpy|set|move|cmp)|malloc|calloc|realloc|free|aligned_alloc|abs|qsort|abort|"
    r"f?printf|f?put[sc]|putchar|fwrite|fflush|stdout|stderr|__f?printf_chk|__mem\w+_chk|__stack_chk_fail|"
    r"omp_get_\w+|GOMP_(parallel|barrier|loop_\w+|critical_\w+)|_GLOBAL_OFFSET_TABLE_|_Zn[wa]m|_Zd[la]Pvm?|"
    r"__cxa_\w+|_ZN11cuda_on_cpu\w+|__gxx_personality_v0|_Unwind_Resume|_ZSt\w+|__errno_location|__assert_fail|__dso_handle")
NO_CODE_BEFORE_MAIN = re.compile(r"\.(?:pre)?(?:init|fini)(?:_array)?\b|\.[cd]tors\b")


class Shortage(Exception):
    """This machine lacks something; no submission is to blame."""


class Verdict:
    """why: "" or why nothing was run; log: the compiler's words; results: (case, wrong or None,
    what the program said).  wrong: (why, where, got, want, allowed)."""

    def __init__(self, why="", log="", note=""):
        self.why, self.log, self.note, self.results = why, log, note, []

    @property
    def failed(self):
        return [x for x in self.results if x[1]]

    @property
    def right(self):
        return bool(self.results) and not self.failed

    @property
    def smallest(self):
        """Of the failures that ran the one with the fewest elements."""
        return min(self.failed, key=lambda x: (x[1][0] == "not run", x[0].size))

    def explained(self, with_words=True):
        """The smallest failure, line by line.  with_words: what the program said; where files are not
        hidden from it, it could say what stands in them."""
        case, (why, where, got, want, allowed), said = self.smallest
        yield f"{where}: {why}" if where else why
        if where:
            yield f"got {got:.9g}  want {want:.9g}  allowed error {allowed:.3g}"
        yield from numbers_of(case)
        if with_words:
            yield from (f"it said: {line}" for line in said_by_program(said))

    def families(self):
        """Family -> are all its cases right?"""
        found = {}
        for case, wrong, _ in self.results:
            found[case.family] = found.get(case.family, True) and not wrong
        return found


def text_of(data):
    """Line ends of Windows and old Macs and a byte-order mark do no harm."""
    text = data.decode("utf-8-sig", errors="replace")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def run_program(command, seconds, cwd, env, talk=None):
    """Exit status (LATE: None), what it said, and its processor time, which the load of the machine
    changes less than the time on the wall.  Nothing that it started outlives it.
    talk(process, seconds): what to say to it meanwhile."""
    with tempfile.TemporaryFile(dir=cwd) as said:
        process = subprocess.Popen(command, cwd=cwd, env=env, start_new_session=True, stderr=said,
                                   stdin=subprocess.PIPE if talk else subprocess.DEVNULL,
                                   stdout=subprocess.PIPE if talk else said)
        end, nap, pid = time.monotonic() + seconds, 2e-4, 0
        if talk:
            talk(process, seconds)
        while not pid:
            late = time.monotonic() > end
            if late:
                kill_group(process.pid)
            pid, status, used = os.wait4(process.pid, 0 if late else os.WNOHANG)
            time.sleep(0 if pid else nap)
            nap = min(1.5 * nap, 0.02)
        kill_group(process.pid)
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        words = said.read(20000).decode("utf-8", errors="replace")
        return None if late else process.returncode, words, used.ru_utime + used.ru_stime


def kill_group(leader):
    """A process and all that it started."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def system_headers(command):
    """Where a compiler looks for <...>."""
    said = subprocess.run([*command, *([] if "-x" in command else ["-x", "c"]), "-E", "-v", "/dev/null"], env={**os.environ, "LC_ALL": "C"},
                          text=True, capture_output=True, check=False).stderr
    listed = said.partition("#include <...> search starts here:")[2].partition("End of search")[0]
    return [str(pathlib.Path(x.strip()).resolve()) for x in listed.split("\n") if x.startswith(" /")]


def compiler_parts(command):
    """Where a compiler's own parts lie, wherever it was installed."""
    found = [shutil.which(command[0]) or ""]
    for question in ("-print-prog-name=cc1", "-print-prog-name=as", "-print-libgcc-file-name"):
        said = subprocess.run([*command, question], text=True, capture_output=True, check=False)
        found.append(shutil.which(said.stdout.strip()) or said.stdout.strip())
    return sorted({str(pathlib.Path(x).resolve().parent) for x in found if x.startswith("/")})


def first_error(log):
    lines = log.strip().split("\n")
    return next((x.strip()[:200] for x in lines if re.search("error|undefined|multiple definition", x)),
                lines[-1][:200] or "the compiler needs too much time, memory or room")


def bare(lines):
    return re.sub(r"\s+", "", "".join(lines))


class Judge:
    """options: build, cc, cxx, link (commands), libs; nvcc where there is one."""

    def __init__(self, options):
        self.build, self.options = pathlib.Path(options.build).resolve(), options
        self.place = pathlib.Path(tempfile.mkdtemp(prefix="judge.")).resolve()
        self.compile = {".c": shlex.split(options.cc), ".cu": shlex.split(options.cxx)}
        self.headers = {x: [*system_headers(y), f"{ROOT}/common"] for x, y in self.compile.items()}
        self.readable = sorted({x for y in (*self.headers.values(), *map(compiler_parts, self.compile.values()))
                                for x in y} | {f"{self.build}/libharness.a"})
        self.jail = f"{self.build}/jail"
        self.isolation = subprocess.run([self.jail, "--complete"], check=False).returncode
        self.known = {}  # exercise -> what its skeleton's object holds

    def close(self):
        shutil.rmtree(self.place, ignore_errors=True)

    def folder(self):
        return pathlib.Path(tempfile.mkdtemp(dir=self.place))

    def jailed(self, options, command, folder, seconds, read=(), talk=None):
        env = {"PATH": os.environ.get("PATH", ""), "TMPDIR": str(folder), "HOME": str(folder),
               "LC_ALL": "C", "CCACHE_DISABLE": "1", "OMP_NUM_THREADS": "1", "OMP_THREAD_LIMIT": "1",
               "MALLOC_PERTURB_": "1"}  # memory that is not written holds UNWRITTEN
        words = [self.jail, *options]
        for path in read:
            words += ["--read", path]
        return run_program([*words, "--write", str(folder), "--", *command], seconds, folder, env, talk)

    def call(self, command, folder):
        """A compiler.  Did it succeed, and what did it say?"""
        status, said, _ = self.jailed(["--compiler", "--cpu", str(COMPILE_S), "--memory", "3072"], command,
                                   folder, 4 * COMPILE_S, self.readable)
        return status == 0, said.replace(f"{folder}/", "").replace(f"{ROOT}/", "")

    # --- 1: the student's part in the code that was handed out ---

    def spliced(self, exercise, text):
        """The source, or None; and a word about what does not count."""
        given, mine = parts_of(exercise.skeleton()), parts_of(text)
        if not mine:
            return None, ""
        same = [bare([NOT_CODE.sub("", "\n".join(x[i]))]) for x in (given, mine) for i in (0, 2)]
        note = "" if same[:2] == same[2:] else "what you changed outside of your part does not count"
        lines = ['#line 1 "given"', *given[0], f'#line {len(mine[0]) + 1} "{exercise.file.name}"',
                 *mine[1], '#line 1 "given"', *given[2]]
        return "\n".join(lines), note

    # --- 2: compiled, and what it holds ---

    def preprocessed(self, exercise, source, folder):
        """The lines of the given code, those of the student, and the files; or what went wrong."""
        path = folder / exercise.file.name
        path.write_text(source, encoding="utf-8")
        ok, log = self.call([*self.compile[path.suffix], "-w", f"-I{ROOT}/common", "-E", path.name,
                             "-o", "expanded"], folder)
        if not ok:
            return None, log
        parts, files, here = {"given": [], path.name: []}, set(), ""
        with open(folder / "expanded", encoding="utf-8", errors="replace") as expanded:
            for line in expanded.read(MOST_TEXT).split("\n"):
                found = re.match(r'# \d+ "((?:[^"\\]|\\.)*)"', line)
                if found:
                    here = found[1]
                    files.add(here)
                elif here in parts:
                    parts[here].append(line)
        return (parts["given"], parts[path.name], files), log

    def strange(self, exercise, text, source, folder):
        """Why the source is not what the exercise asks for, or ""; and the compiler's words."""
        found, log = self.preprocessed(exercise, source, folder)
        if not found:
            denied = re.search(r"fatal error: (.*): Permission denied", log)
            return (f"includes {denied[1]}, which is not allowed", "") if denied else \
                ("does not compile: " + first_error(log), log)
        given, mine, files = found
        for name in sorted(files - self.known_of(exercise)["files"]):  # of ours, what is given includes
            path = pathlib.Path(folder, name).resolve()
            if name[0] != "<" and (path.is_relative_to(ROOT) or not any(
                    path.is_relative_to(x) for x in self.headers[exercise.file.suffix])):
                return f"includes {name}, which is not allowed", ""
        if bare(given) != self.known_of(exercise)["given"]:
            return "changes the code that was given: a macro, an #if or a bracket reaches beyond your part", ""
        word = FORBIDDEN.search(STRING.sub('""', "\n".join(mine)))
        word = word or DIRECTIVE.search(re.sub(r"(\\|\?\?/)\n", "", "\n".join(parts_of(text)[1])))
        return (f"may not use '{word[0].strip()}'" if word else ""), ""

    def holds(self, path):
        """Sections and undefined names of an object, or None if it cannot be read."""
        env = {**os.environ, "LC_ALL": "C"}
        said = [subprocess.run(["readelf", option, str(path)], text=True, errors="replace", env=env,
                               capture_output=True, check=False, timeout=COMPILE_S)
                for option in ("-SW", "-sW")]
        if any(x.returncode for x in said):
            return None
        sections = set(re.findall(r"\] (\S+) +[A-Z]", said[0].stdout))
        names = set(re.findall(r" UND (\S+)", said[1].stdout))
        return sections, names, "IFUNC" in said[1].stdout

    def known_of(self, exercise):
        """The same of the skeleton: the given code behind the preprocessor, and its object."""
        if exercise.name not in self.known:
            folder = self.folder()
            source = exercise.skeleton() if exercise.whole_file else \
                self.spliced(exercise, exercise.skeleton())[0]
            found, log = self.preprocessed(exercise, source, folder)
            if not found:
                raise Shortage(f"{exercise.name}: the code that is handed out does not compile here: {log[:400]}")
            ok, log = self.call(self.object_of(exercise), folder)
            if not ok or not self.holds(folder / "object.o"):
                raise Shortage(f"{exercise.name}: the code that is handed out does not compile here: {log[:400]}")
            sections, names, _ = self.holds(folder / "object.o")
            self.known[exercise.name] = {"given": bare(found[0]), "files": found[2], "sections": sections,
                                         "names": names}
            shutil.rmtree(folder, ignore_errors=True)
        return self.known[exercise.name]

    def object_of(self, exercise):
        return [*self.compile[exercise.file.suffix], "-w", f"-I{ROOT}/common", "-c", exercise.file.name,
                "-o", "object.o"]

    def refused(self, exercise, folder):
        """Why the object may not be linked, or ""."""
        known, found = self.known_of(exercise), self.holds(folder / "object.o")
        if not found:
            return "is no object file that can be read"
        for section in sorted(found[0] - known["sections"]):
            if NO_CODE_BEFORE_MAIN.search(section):
                return "runs code before main(): a variable whose start value is computed; compute it in a function"
        if found[2]:
            return "has a function that is chosen before main() (ifunc)"
        if not exercise.any_call:
            for name in sorted(found[1] - known["names"]):
                if not CALLS.fullmatch(name.split("@")[0]):
                    return f"calls {name}, which no answer needs"
        return ""

    def built(self, exercise, text, folder):
        """Makes folder/program.  Why not, or ""; the compiler's words; a note."""
        if exercise.whole_file:
            source, note = text, ""
            (folder / exercise.file.name).write_text(source, encoding="utf-8")
        else:
            source, note = self.spliced(exercise, text)
            if source is None:
                return "the two lines '>>> your part' and '<<< end of your part' must stay, once each", "", ""
            why, log = self.strange(exercise, text, source, folder)
            if why:
                return why, log, note
        ok, log = self.call(self.object_of(exercise), folder)
        if not ok:
            return "does not compile: " + first_error(log), log, note
        why = self.refused(exercise, folder)
        if why:
            return why, "", note
        ok, log = self.call(["objcopy", "--keep-global-symbol=main", "--keep-global-symbol=exercise",
                             "object.o"], folder)
        if ok:
            ok, log = self.linked(["object.o"], "program", folder)
        return ("", "", note) if ok else ("does not link: " + first_error(log), log, note)

    def linked(self, objects, name, folder):
        return self.call([*shlex.split(self.options.link), *objects, f"{self.build}/libharness.a",
                          *shlex.split(self.options.libs), "-o", name], folder)

    def program(self, exercise, data, folder):
        """The same, and it is the student's fault: else the solution does not compile either."""
        why, log, note = self.built(exercise, text_of(data), folder)
        if why and "error:" not in why and log and exercise.solution:
            other = self.folder()
            try:
                if self.built(exercise, text_of(exercise.solution.read_bytes()), other)[0]:
                    raise Shortage(f"the solution of {exercise.name} does not compile here either")
            finally:
                shutil.rmtree(other, ignore_errors=True)
        return why, log, note

    # --- 3: run ---

    def write_cases(self, exercise, seed, draw=0):
        """The cases and their files, once for all submissions."""
        found, top = cases_of(*exercise.promises, seed, draw, "f16" in exercise.flags), self.folder()
        for i, case in enumerate(found):
            case.flags = case.flags + exercise.flags
            self.write_case(case, top / str(i))
        return found

    @staticmethod
    def write_case(case, folder):
        case.folder = folder
        folder.mkdir(exist_ok=True)
        for name, array in case.inputs.items():
            np.save(folder / f"{name}.npy", array)

    @staticmethod
    def words_of(case, out):
        """The command line of a case; results that lie there already go."""
        words = ["run", *case.flags]
        for name in case.inputs:
            words += [f"--{name}", str(case.folder / f"{name}.npy")]
        for name in case.outputs:
            words += [f"--{name}", str(out / f"{name}.npy")]
            (out / f"{name}.npy").unlink(missing_ok=True)
        return words

    def run_case(self, program, case, out):
        """Exit status (LATE: None), what it said, and its processor time."""
        return self.jailed(["--cpu", str(CASE_S), "--memory", str(MEMORY_MIB)],
                           [str(program), *self.words_of(case, out)], out, WALL_S + CASE_S, [str(case.folder)])

    @staticmethod
    def died(status):
        """Why there are no results, or None."""
        return "took too long" if status in (None, -signal.SIGXCPU, -signal.SIGKILL) else \
            f"crashed: {signal.strsignal(-status)}" if status < 0 else None

    def compare(self, case, out, status):
        """What is wrong with the results of a run, or None."""
        if self.died(status):
            return self.died(status), "", 0, 0, 0
        got = {}
        for name in case.outputs:
            try:
                got[name] = np.load(out / f"{name}.npy", allow_pickle=False)
            except (OSError, ValueError, SyntaxError, EOFError, MemoryError):
                return f"ended with status {status} and without a result", "", 0, 0, 0
        return case.wrong(got)

    def run_cases(self, program, found, other=None):
        """Results of all cases.  other: the solution's program; where it has no result either, this
        machine is to blame."""
        results, hangs, out = [], 0, self.folder()
        for case in found:
            if hangs >= MOST_HANGS:
                results.append((case, ("not run", "", 0, 0, 0), ""))
                continue
            status, said, _ = self.run_case(program, case, out)
            wrong = self.compare(case, out, status)
            if wrong and other and re.match("crashed|took|ended", wrong[0]):
                failed = self.compare(case, out, self.run_case(other, case, out)[0])
                if failed:
                    raise Shortage(f"{case.name}: the solution {failed[0]} too")
            hangs += bool(wrong) and wrong[0] == "took too long"
            results.append((case, wrong, said))
        shutil.rmtree(out, ignore_errors=True)
        return results

    def verdict(self, exercise, data, found, other=None, keep=None):
        """keep: where the program goes, for the student to try."""
        folder = self.folder()
        try:
            why, log, note = self.program(exercise, data, folder)
            verdict = Verdict(why, log, note)
            if not why:
                if keep:
                    keep.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(folder / "program", keep)
                    shutil.copy2(folder / "object.o", f"{keep}.cpu.o")
                verdict.results = self.run_cases(folder / "program", found, other)
            return verdict
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def said_by_program(said):
    """Its own words, without the harness's two lines."""
    return [x for x in said.split("\n") if x.strip() and
            not re.match(r"variant \S+ \(|\w+ of (x|q) \[|wrote |  ", x)][:4]


def numbers_of(case, most=8):
    """A small case that can be computed by hand, a line for each array."""
    arrays = [(x, "=", y) for x, y in case.inputs.items()] + \
        [(x, "should be", y) for x, (y, _) in case.outputs.items()]
    if any(y.size > most for _, _, y in arrays):
        return []
    return [f"{x} {word} {' '.join(f'{float(e):.9g}' for e in y.flat)}" for x, word, y in arrays]
