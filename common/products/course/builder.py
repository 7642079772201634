"""builder.py: from a file that somebody wrote to a program, and nothing else.

1.  Of the file the student's part (forms.py) is put into the code that was handed out.  What stands
    elsewhere does not count.
2.  That is compiled in a jail (jail.c), as the student's lines, so that the compiler's messages
    have the student's line numbers.  Behind the preprocessor the given code must read as it did,
    and the student's may not ask for what a computation does not need (FORBIDDEN, CALLS).
3.  The object is linked with the harness: that is a stage's program."""
import contextlib
import os
import pathlib
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import types

from forms import fail, parts_of

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # for NumPy, which is imported later: as many jobs as cores
ROOT = pathlib.Path(__file__).resolve().parents[3]
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


class Refused(Exception):
    """Why a submission is not run; log: the compiler's words."""

    def __init__(self, why, log=""):
        super().__init__(why)
        self.log = log


@contextlib.contextmanager
def judging(kind, options):
    """A judge of that kind.  Nothing of its work stays behind, also after a signal; where this machine
    lacks something, that ends the program."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda which, _: sys.exit(128 + which))
    judge = None
    try:
        judge = kind(options)
        yield judge
    except (Shortage, MemoryError, OSError) as error:
        fail(f"stopped without a mark: {error or 'no memory'}", 3)
    finally:
        if judge:
            judge.close()


def text_of(data):
    """Line ends of Windows and old Macs and a byte-order mark do no harm."""
    text = data.decode("utf-8-sig", errors="replace")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def kill_group(leader):
    """A process and all that it started."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def run_program(command, seconds, cwd, env, talk=None):
    """Exit status (None: it was late), what it said, and its processor time, which the load of the
    machine changes less than the time on the wall.  Nothing that it started outlives it.
    talk(process, seconds): what to say to it meanwhile."""
    def used():
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return children.ru_utime + children.ru_stime

    before = used()
    with tempfile.TemporaryFile(dir=cwd) as said, subprocess.Popen(
            command, cwd=cwd, env=env, start_new_session=True, stderr=said,
            stdin=subprocess.PIPE if talk else subprocess.DEVNULL,
            stdout=subprocess.PIPE if talk else said) as process:
        try:
            if talk:
                talk(process, seconds)
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            kill_group(process.pid)
        process.wait()
        said.seek(0)
        return status, said.read(20000).decode("utf-8", errors="replace"), used() - before


def asked(*command):
    """What a tool answers."""
    return subprocess.run(command, text=True, errors="replace", check=False, capture_output=True,
                          env={**os.environ, "LC_ALL": "C"}, timeout=COMPILE_S)


def system_headers(command):
    """Where a compiler looks for <...>."""
    language = [] if "-x" in command else ["-x", "c"]
    said = asked(*command, *language, "-E", "-v", "/dev/null").stderr
    listed = said.partition("#include <...> search starts here:")[2].partition("End of search")[0]
    return [str(pathlib.Path(x.strip()).resolve()) for x in listed.split("\n") if x.startswith(" /")]


def compiler_parts(command):
    """Where a compiler's own parts lie, wherever it was installed."""
    found = [command[0]] + [asked(*command, f"-print-{part}").stdout.strip()
                            for part in ("prog-name=cc1", "prog-name=as", "libgcc-file-name")]
    found = [shutil.which(x) or x for x in found]
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
        self.headers = {x: [*system_headers(y), f"{ROOT}/common/core", f"{ROOT}/common/products"] for x, y in self.compile.items()}
        self.readable = sorted({x for y in (*self.headers.values(), *map(compiler_parts, self.compile.values()))
                                for x in y} | {f"{self.build}/libharness.a"})
        self.jail = f"{self.build}/jail"
        self.isolation = subprocess.run([self.jail, "--complete"], check=False).returncode
        self.known = {}  # exercise -> what the code that is handed out holds

    def close(self):
        shutil.rmtree(self.place, ignore_errors=True)

    def folder(self):
        return pathlib.Path(tempfile.mkdtemp(dir=self.place))

    def jailed(self, options, command, folder, seconds, read=(), talk=None):
        env = {"PATH": os.environ.get("PATH", ""), "TMPDIR": str(folder), "HOME": str(folder),
               "LC_ALL": "C", "CCACHE_DISABLE": "1", "OMP_NUM_THREADS": "1", "OMP_THREAD_LIMIT": "1",
               "MALLOC_PERTURB_": "1"}  # memory that is not written holds UNWRITTEN
        for path in read:
            options = [*options, "--read", path]
        return run_program([self.jail, *options, "--write", str(folder), "--", *command], seconds, folder,
                           env, talk)

    def call(self, command, folder, what="does not compile"):
        """A compiler, or Refused."""
        status, said, _ = self.jailed(["--compiler", "--cpu", str(COMPILE_S), "--memory", "3072"], command,
                                      folder, 4 * COMPILE_S, self.readable)
        said = said.replace(f"{folder}/", "").replace(f"{ROOT}/", "")
        if status != 0:
            raise Refused(f"{what}: {first_error(said)}", said)

    def compiled(self, exercise, folder, step="-c", out="object.o"):
        self.call([*self.compile[exercise.file.suffix], "-w", f"-I{ROOT}/common/core", f"-I{ROOT}/common/products", step, exercise.file.name,
                   "-o", out], folder)

    def linked(self, objects, name, folder):
        self.call([*shlex.split(self.options.link), *objects, f"{self.build}/libharness.a",
                   *shlex.split(self.options.libs), "-o", name], folder, "does not link")

    def gpu_commands(self, source, program):
        """In the folder of object.o: its kernels for the GPU too."""
        return ([*shlex.split(self.options.nvcc), "-w", f"-I{ROOT}/common/core", f"-I{ROOT}/common/products", "-c", source, "-o", "gpu.o"],
                [*shlex.split(self.options.link), "object.o", "gpu.o", f"{self.build}/libharness.a",
                 *shlex.split(self.options.libs), "-o", program])

    # --- 1: the student's part in the code that was handed out ---

    @staticmethod
    def write_source(exercise, text, folder):
        if not exercise.whole_file:
            given, mine = parts_of(exercise.skeleton()), parts_of(text)
            if not mine:
                raise Refused("the two lines '>>> your part' and '<<< end of your part' must stay, once each")
            text = "\n".join(['#line 1 "given"', *given[0], f'#line {len(mine[0]) + 1} "{exercise.file.name}"',
                              *mine[1], '#line 1 "given"', *given[2]])
        (folder / exercise.file.name).write_text(text, encoding="utf-8")

    @staticmethod
    def note(exercise, text):
        """A word about what does not count."""
        if exercise.whole_file or not parts_of(text):
            return ""
        given, mine = ([bare([NOT_CODE.sub("", "\n".join(x[i]))]) for i in (0, 2)]
                       for x in (parts_of(exercise.skeleton()), parts_of(text)))
        return "" if given == mine else "what you changed outside of your part does not count"

    # --- 2: compiled, and what it holds ---

    def preprocessed(self, exercise, folder):
        """The lines of the given code, those of the student, and the files."""
        self.compiled(exercise, folder, "-E", "expanded")
        parts, files, here = {"given": [], exercise.file.name: []}, set(), ""
        with open(folder / "expanded", encoding="utf-8", errors="replace") as expanded:
            for line in expanded.read(MOST_TEXT).split("\n"):
                found = re.match(r'# \d+ "((?:[^"\\]|\\.)*)"', line)
                if found:
                    here = found[1]
                    files.add(here)
                elif here in parts:
                    parts[here].append(line)
        return parts["given"], parts[exercise.file.name], files

    def look_at_source(self, exercise, text, folder):
        """Is the source there what the exercise asks for?"""
        try:
            given, mine, files = self.preprocessed(exercise, folder)
        except Refused as error:
            denied = re.search(r"fatal error: (.*): Permission denied", error.log)
            raise Refused(f"includes {denied[1]}, which is not allowed") if denied else error
        known = self.known_of(exercise)
        for name in sorted(files - known.files):  # of ours, what is given includes
            path = pathlib.Path(folder, name).resolve()
            if name[0] != "<" and (path.is_relative_to(ROOT) or not any(
                    path.is_relative_to(x) for x in self.headers[exercise.file.suffix])):
                raise Refused(f"includes {name}, which is not allowed")
        if bare(given) != known.given:
            raise Refused("changes the code that was given: a macro, an #if or a bracket reaches beyond your part")
        word = FORBIDDEN.search(STRING.sub('""', "\n".join(mine)))
        word = word or DIRECTIVE.search(re.sub(r"(\\|\?\?/)\n", "", "\n".join(parts_of(text)[1])))
        if word:
            raise Refused(f"may not use '{word[0].strip()}'")

    @staticmethod
    def holds(path):
        """Sections, undefined names, and whether a function is chosen when the program is loaded."""
        sections, names = asked("readelf", "-SW", path), asked("readelf", "-sW", path)
        if sections.returncode or names.returncode:
            raise Refused("is no object file that can be read")
        return set(re.findall(r"\] (\S+) +[A-Z]", sections.stdout)), \
            set(re.findall(r" UND (\S+)", names.stdout)), "IFUNC" in names.stdout

    def known_of(self, exercise):
        """What the code that is handed out holds."""
        if exercise.name not in self.known:
            folder = self.folder()
            try:
                self.write_source(exercise, exercise.skeleton(), folder)
                given, _, files = self.preprocessed(exercise, folder)
                self.compiled(exercise, folder)
                sections, names, _ = self.holds(folder / "object.o")
            except Refused as error:
                raise Shortage(f"{exercise.name}: the code that is handed out {error}") from error
            self.known[exercise.name] = types.SimpleNamespace(given=bare(given), files=files, sections=sections,
                                                              names=names)
            shutil.rmtree(folder, ignore_errors=True)
        return self.known[exercise.name]

    def look_at_object(self, exercise, folder):
        """May the object there be linked?"""
        known, (sections, names, chosen) = self.known_of(exercise), self.holds(folder / "object.o")
        if any(NO_CODE_BEFORE_MAIN.search(x) for x in sections - known.sections):
            raise Refused("runs code before main(): a variable whose start value is computed; compute it in a function")
        if chosen:
            raise Refused("has a function that is chosen before main() (ifunc)")
        for name in sorted(names - known.names):
            if not exercise.whole_file and not CALLS.fullmatch(name.split("@")[0]):
                raise Refused(f"calls {name}, which no answer needs")

    def built(self, exercise, text, folder):
        """Makes folder/program, or Refused."""
        self.write_source(exercise, text, folder)
        if not exercise.whole_file:
            self.look_at_source(exercise, text, folder)
        self.compiled(exercise, folder)
        self.look_at_object(exercise, folder)
        self.call(["objcopy", "--keep-global-symbol=main", "--keep-global-symbol=exercise", "object.o"], folder,
                  "does not link")
        self.linked(["object.o"], "program", folder)

    def program(self, exercise, text, folder):
        """The same, and it is the student's fault: else the solution does not compile either."""
        try:
            self.built(exercise, text, folder)
        except Refused as error:
            if "error:" not in str(error) and error.log and exercise.solution:
                try:
                    self.built(exercise, text_of(exercise.solution.read_bytes()), self.folder())
                except Refused:
                    raise Shortage(f"the solution of {exercise.name} does not compile here either") from error
            raise
