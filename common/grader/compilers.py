"""compilers.py: a submission is compiled: in a folder of its own, with few headers, confined."""
import fcntl
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile

import processes
from exercises import ROOT
from machine import LACKING_WORDS, ROOM, Shortage, free_room, remove_stale
from objects import refused

HEADERS = ["harness.h", "problem/mask.h", "problem/size.h", "problem/half.h",
           "gpu/cuda_check.h", "cuda_on_cpu/cuda_on_cpu.h",
           "cuda_on_cpu/cuda_types_on_cpu.h", "cuda_on_cpu/warp_on_cpu.h"]
OBJECTS = ["grader/worker.o", "grader/worker_host.o", "cuda_on_cpu/executor.o"]  # the last for .cu
OBJCOPY = "objcopy"     # of the binutils that gcc and clang need
COMPILE_WALL_S = 120    # the other limits of a compiler: common/grader/judge.c


def listed_headers(command):
    """The folders in which a compiler looks for <...>, as the command says it."""
    said = subprocess.run(command, env={**os.environ, "LC_ALL": "C"}, text=True,
                          capture_output=True, check=False).stderr
    listed = said.partition("search starts here:\n#include <...>")[2] or \
        said.partition("#include <...> search starts here:")[2]
    folders = [x.strip() for x in listed.partition("End of search list")[0].split("\n")]
    return [pathlib.Path(x).resolve() for x in folders if x.startswith("/")]


def system_headers(command):
    """The folders in which a C or C++ compiler looks for <...>."""
    return listed_headers([*command, "-E", "-v", "-x", "c++" if "c++" in command else "c",
                           "/dev/null"])


def host_headers(nvcc):
    """The same of the compiler behind nvcc, which need not be the one that compiles C++ here."""
    return listed_headers([*nvcc, "-x", "cu", "-E", "-Xcompiler", "-v", "/dev/null"]) if nvcc else []


def strange(depends, folder, allowed):
    """The first included file that lies in no allowed folder."""
    text = depends.read_text(errors="replace").replace("\\\n", " ").split(":", 1)[-1]
    for word in text.split():
        path = pathlib.Path(folder, word)
        forms = path.resolve(), pathlib.Path(os.path.normpath(path))
        if not any(form.is_relative_to(root) for form in forms for root in allowed):
            return word
    return None


def belongs(command):
    """Where a compiler's own parts lie, wherever it was installed."""
    found = [shutil.which(command[0]) or command[0]]
    for question in ("-print-prog-name=cc1", "-print-prog-name=as", "-print-prog-name=ld",
                     "-print-libgcc-file-name"):
        said = subprocess.run([*command, question], text=True, capture_output=True,
                              check=False).stdout.strip()
        found.append(shutil.which(said) or said)
    places = {pathlib.Path(x).resolve().parent for x in found if x.startswith("/")}
    return [x for x in sorted(places) if not ROOT.is_relative_to(x)]


def first_error(log):
    if re.search("signal terminated program|memory exhausted|out of memory|^killed: ", log, re.M):
        return "the compiler needs too much time, memory or room"
    for line in log.splitlines():
        if "error" in line or "undefined" in line or "multiple definition" in line:
            return line.strip()[:200]
    return (log.strip().splitlines() or ["killed: too much time or memory"])[-1][:200]


class Compiler:
    """The compilers of the grader, and a place where they work."""

    def __init__(self, options):
        self.build = pathlib.Path(options.build).resolve()
        self.compile = {".c": shlex.split(options.cc), ".cu": shlex.split(options.cxx)}
        self.link = shlex.split(options.link)
        self.system = {x: system_headers(command) for x, command in self.compile.items()}
        self.readable = sorted({str(x) for command in (*self.compile.values(), self.link)
                                for x in belongs(command)}
                               | {str(x) for some in self.system.values() for x in some})
        self.nvcc = shlex.split(getattr(options, "nvcc", ""))
        self.system["gpu"] = host_headers(self.nvcc)
        self.gpu_link = shlex.split(getattr(options, "gpu_link", ""))
        self.cuda = [pathlib.Path(shutil.which(x) or x).resolve().parents[1] for x in self.nvcc[:1]]
        self.readable += [str(x) for x in (*self.cuda, *self.system["gpu"])]
        remove_stale()
        self.place = pathlib.Path(tempfile.mkdtemp(prefix="grade.")).resolve()
        self.lock = open(self.place / "lock", "wb")  # pylint: disable=consider-using-with
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        self.given = self.place / "given"
        for name in HEADERS:
            copy = self.given / "include" / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / "common" / name, copy)
        for name in OBJECTS + (["grader/worker_gpu.cuda.o"] if self.nvcc else []):
            shutil.copy2(self.build / "obj/common" / name, self.given)
        status, _, _ = self.confined([], self.place)
        self.compiler_is_jailed = status == 0

    def confined(self, command, folder, log=None):
        """Runs a compiler, which writes in `folder` only."""
        environment = {"PATH": os.environ.get("PATH", ""), "TMPDIR": str(folder), "HOME": str(folder),
                       "LC_ALL": "C", "CCACHE_DISABLE": "1"}
        return processes.run([f"{self.build}/judge", "compile", str(folder), str(self.given),
                              *self.readable, "--", *command], COMPILE_WALL_S, folder,
                             environment, log)

    def call(self, command, folder):
        """Did a compiler succeed, and what did it say?"""
        with open(folder / "log", "w+b") as log:
            status, _, _ = self.confined(command, folder, log)
            log.seek(0)
            said = log.read(20000).decode(errors="replace")
        return status == 0, said + ("killed: took too long" if status == processes.LATE else "")

    def preprocessed(self, text, suffix, headers=()):
        """The text behind the preprocessor, with the macros of these headers, as far as they exist.
        None where that fails."""
        places = [self.given / "include", *self.system[suffix]]
        macros = [y for x in headers if any((place / x).is_file() for place in places)
                  for y in ("-imacros", x)]
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.place))
        try:
            source = folder / f"text{suffix}"
            source.write_text(text, encoding="utf-8", errors="replace")
            ok, log = self.call([*self.compile[suffix], f"-I{places[0]}", "-E", "-P", "-w", *macros,
                                 source.name, "-o", "out"], folder)
            if LACKING_WORDS.search(log):
                raise Shortage(f"the preprocessor: {log[:200]}")
            return (folder / "out").read_text(encoding="utf-8", errors="replace") if ok else None
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def build_once(self, exercise, data, folder):
        """Compiles and links in `folder`; returns "" or why not, and what was said.  Of the object
        file only main() is seen by others: what it defines replaces nothing."""
        source = folder / exercise.file.name
        source.write_bytes(data)
        command = self.compile[source.suffix] + ["-w", f"-I{self.given}/include", source.name]
        ok, log = self.call([*command, "-c", "-MD", "-MF", "depends", "-o", "object.o"], folder)
        if not ok:
            denied = re.search(r"fatal error: (.*): Permission denied", log)
            if denied:
                return f"includes {denied[1]}, which is not allowed", ""
            if not self.compiler_is_jailed:  # it may quote files that nobody should read
                return "does not compile (make exercise says why)", ""
            return "does not compile: " + first_error(log), log
        word = strange(folder / "depends", folder,
                       [folder, self.given, *self.system[source.suffix]])
        if word:
            return f"includes {word}, which is not allowed", ""
        if exercise.fixed_form:
            why = refused(folder / "object.o")
            if why:
                return why, ""
        ok, log = self.call([OBJCOPY, "--keep-global-symbol=main", "object.o"], folder)
        if not ok:
            return "is no object file that can be linked: " + first_error(log), log
        objects = ["object.o", *(str(self.given / pathlib.Path(x).name) for x in OBJECTS[
            :2 if source.suffix == ".c" else 3])]
        ok, log = self.call(self.link + objects + ["-lm", "-lpthread", "-o", "worker"], folder)
        return ("", "") if ok else ("does not link: " + first_error(log), log)

    def build_for_gpu(self, project, folder):
        """The same source by nvcc, into folder/gpu_worker; "" or why not, and what was said."""
        name = project.file.name
        ok, log = self.call([*self.nvcc, "-w", f"-I{self.given}/include", "-c", "-MD", "-MF", "gpu.depends",
                             name, "-o", "gpu.o"], folder)
        if not ok:
            return "does not compile for the GPU: " + first_error(log), log
        word = strange(folder / "gpu.depends", folder,
                       [folder, self.given, *self.system["gpu"], *self.cuda])
        if word:
            return f"includes {word}, which is not allowed", ""
        objects = [str(self.given / x) for x in ("worker.o", "worker_gpu.cuda.o", "executor.o")]
        ok, log = self.call([*self.link, "gpu.o", *objects, "-lm", "-lpthread", *self.gpu_link, "-o",
                             "gpu_worker"], folder)
        return ("", "") if ok else ("does not link for the GPU: " + first_error(log), log)

    def build_worker(self, exercise, data, folder):
        """The same, and it is the submission's fault: where this machine may have lacked
        something, the solution must compile at the same time, and the submission fail again."""
        why, log = self.build_once(exercise, data, folder)
        if not why or why.startswith("includes"):
            return why, log
        if free_room(self.place) < ROOM:
            raise Shortage(f"{self.place.parent} has {free_room(self.place) >> 20} MiB of room "
                           "left")
        if log and "CPU time limit" not in log and \
                (LACKING_WORDS.search(log) or "error" not in log):
            for text in (exercise.solution.read_bytes(), data):
                shutil.rmtree(folder)
                folder.mkdir()
                why, log = self.build_once(exercise, text, folder)
                if why and text is not data:
                    raise Shortage(f"the solution of {exercise.name} {why}")
        return why, log

    def without_places(self, text, folder):
        """What a compiler said, but for the names that differ from run to run."""
        for place in (folder, self.place, self.build):
            text = text.replace(f"{place}/", "")
        return re.sub(r"\bcc\w{6}\.([so])\b", r"compiled.\1", text)
