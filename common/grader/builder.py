"""builder.py: from a file that somebody wrote to a program, and nothing else.

1.  Of the file the student's part (forms.py) is put into the code that was handed out.  What stands
    elsewhere does not count.
2.  That is compiled in a jail (jail.c), as the student's lines, so that the compiler's messages
    have the student's line numbers.  Behind the preprocessor the given code must read as it did,
    and the student's may not ask for what a computation does not need (FORBIDDEN, CALLS).
3.  The object is linked with the harness: that is a stage's program."""
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time

from forms import parts_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMPILE_S, MOST_TEXT = 30, 8 << 20
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
    r"__cxa_\w+|_ZN11cuda_on_cpu\w+|__gxx_personality_v0|_Unwind_Resume|_ZSt\w+|__errno_location|"
    r"__assert_fail|__dso_handle")
NO_CODE_BEFORE_MAIN = re.compile(r"\.(?:pre)?(?:init|fini)(?:_array)?\b|\.[cd]tors\b")


class Shortage(Exception):
    """This machine lacks something; no submission is to blame."""


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
    language = [] if "-x" in command else ["-x", "c"]
    said = subprocess.run([*command, *language, "-E", "-v", "/dev/null"], text=True, check=False,
                          env={**os.environ, "LC_ALL": "C"}, capture_output=True).stderr
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


class Builder:
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
