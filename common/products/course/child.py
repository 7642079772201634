"""child.py: the judge's side of a student's process (child.c): it sends one call and gets its answer.

    with Child(jail, program) as child:
        y, = child.call([4], [x], [4])              numbers, inputs, lengths of the outputs

serve(what, a, b, floats) answers the child's questions: floats, or None: there is no more.  Whatever
comes is read as numbers of the length that was asked for; anything else raises Wrong."""
import os
import pathlib
import select
import signal
import socket
import struct
import subprocess
import tempfile
import time

import numpy as np

READY, DONE = "r", "d"
CPU_S, WALL_S, MOST_ASKED, MOST_FLOATS, MOST_THREADS, PRINTED = 3, 20, 200000, 1 << 22, 256, 4000
UNWRITTEN = "an element that was not written"


class Wrong(Exception):
    """What is wrong with an answer: why; and where, got, want, allowed of the first wrong element."""

    def __init__(self, why, where="", got=0.0, want=0.0, allowed=0.0):
        super().__init__(why)
        self.why, self.where, self.got, self.want, self.allowed = why, where, got, want, allowed

    def __str__(self):
        return f"{self.where}: {self.why}" if self.where else self.why

    def numbers(self):
        got = "nothing" if self.why == UNWRITTEN else f"{self.got:.9g}"
        return f"got {got}  want {self.want:.9g}  allowed error {self.allowed:.3g}" if self.where else ""


class Died(Wrong):
    """The process has ended, or had to be ended."""


class Child:
    """order: of the threads of kernels; threads: may it start some?  ceiling(threads): the judge's yardstick,
    multiply-adds a second.  gpu(**inputs): the same kernel on a GPU (Judge.on_gpu).  share: percent of a ceiling, where
    a case measured it.  shared: the mean of the threads' time as a share of the busiest one's, in the last timed call."""

    def __init__(self, jail, program, order="", threads=False, ceiling=None, gpu=None):
        self.many, self.ceiling, self.gpu, self.share = threads, ceiling, gpu, None
        self.words, (self.socket, theirs) = tempfile.TemporaryFile(), socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [jail, *["-t"] * threads, str(program)], stdin=theirs, stdout=self.words, stderr=self.words,
                start_new_session=True, env={"OMP_NUM_THREADS": "1", "CUDA_ON_CPU_ORDER": order}, cwd="/")
        self.clock, self.until = ~self.process.pid << 3 | 2, (0.0, 0.0)
        self.before, self.spent = {}, None  # of a timed call: processor seconds of each thread
        self.socket.setblocking(False)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()
        self.process.kill()
        self.process.wait()
        self.words.close()

    def printed(self):
        """What it has printed so far."""
        return os.pread(self.words.fileno(), PRINTED, 0).decode("utf-8", errors="replace")

    # --- bytes ---

    def cpu(self):
        try:
            return time.clock_gettime(self.clock)
        except OSError:
            return 0.0

    def ended(self, why=""):
        """Raises Died, with the reason."""
        try:
            status = self.process.wait(0 if why else 1)
        except subprocess.TimeoutExpired:
            status = None
        self.process.kill()
        self.process.wait()
        if why or status in (None, -signal.SIGXCPU, -signal.SIGKILL):
            raise Died(why or "took too long")
        if status < 0:
            hint = " (an index out of bounds?)" if status == -signal.SIGSEGV else ""
            raise Died(f"crashed: {signal.strsignal(-status)}{hint}")
        said = self.printed().strip().splitlines()
        raise Died(f"ended with status {status}" + (f": {said[-1][:300]}" if said else " and without an answer"))

    def wait(self, event):
        """Until the socket is ready, or too much time has been used."""
        poll = select.poll()
        poll.register(self.socket, event)
        while not poll.poll(2 if self.many else 200):
            if self.spent is not None:
                self.spent |= self.threads()
            if self.many and os.stat(f"/proc/{self.process.pid}/task").st_nlink > MOST_THREADS + 2:
                self.ended(f"started more than {MOST_THREADS} threads")
            if self.cpu() > self.until[0] or time.monotonic() > self.until[1]:
                self.ended("took too long")
            if self.process.poll() is not None and event == select.POLLOUT:
                self.ended()

    def send(self, data):
        data = memoryview(data)
        while data:
            try:
                data = data[self.socket.send(data, socket.MSG_NOSIGNAL):]
            except BlockingIOError:
                self.wait(select.POLLOUT)
            except OSError:
                self.ended()

    def receive(self, n):
        data, at = bytearray(n), 0
        while at < n:
            try:
                got = self.socket.recv_into(memoryview(data)[at:])
            except BlockingIOError:
                self.wait(select.POLLIN)
                continue
            except OSError:
                got = 0
            if not got:
                self.ended()
            at += got
        return data

    # --- calls ---

    def threads(self):
        """Processor seconds of each living thread."""
        found = {}
        for path in pathlib.Path(f"/proc/{self.process.pid}/task").glob("*/schedstat"):
            try:
                found[path.parent.name] = int(path.read_text(encoding="ascii").split()[0]) * 1e-9
            except OSError:
                pass
        return found

    def timed(self, threads, *words):
        """The outputs of a call, and the processor seconds of the busiest thread between the last input and the whole
        answer, after which it is stopped.  Of a thread that has ended they are those of a moment before; all together
        they had no less than their sum over all threads allowed."""
        try:
            self.spent = {}
            found = self.call(*words)
            self.spent |= self.threads()
            busiest = max(x - self.before.get(thread, 0) for thread, x in self.spent.items())
            mean = (self.cpu() - self.begin) / threads
        finally:
            self.spent = None
        self.shared = mean / max(busiest, mean)
        return found, max(busiest, mean)

    def call(self, numbers, inputs, lengths, serve=None):
        """The outputs, arrays of these lengths.  Between calls the process stands still."""
        os.kill(self.process.pid, signal.SIGCONT)
        self.until = self.cpu() + CPU_S, time.monotonic() + WALL_S
        arrays = [np.ascontiguousarray(x, np.float32) for x in inputs]
        words = [len(numbers), len(inputs), len(lengths), *numbers, *(x.size for x in arrays), *lengths]
        self.send(struct.pack(f"={len(words)}q", *map(int, words)) + b"".join(x.tobytes() for x in arrays[1:]))
        if self.message()[0] != READY:
            self.ended("answered out of turn")
        if self.spent is not None:
            self.before, self.begin = self.threads(), self.cpu()
        self.reply(arrays[0] if arrays else [])
        for _ in range(MOST_ASKED):
            what, a, b, floats = self.message()
            if what == DONE:
                break
            if not serve:
                self.ended("asked for what this exercise does not have")
            self.reply(serve(what, a, b, floats))
        else:
            self.ended("asked without end")
        os.kill(self.process.pid, signal.SIGSTOP)
        if floats.size != sum(lengths):
            self.ended("answered out of turn")
        return np.split(floats, np.cumsum(lengths)[:-1]) if lengths else []

    def message(self):
        """What, two numbers, floats."""
        what, a, b, n = struct.unpack("=4q", self.receive(32))
        if not 0 <= n <= MOST_FLOATS:
            self.ended("answered out of turn")
        return chr(what & 127), a, b, np.frombuffer(self.receive(4 * n), np.float32)

    def reply(self, floats):
        """None: there is no more."""
        data = b"" if floats is None else np.ascontiguousarray(floats, np.float32).tobytes()
        self.send(struct.pack("=q", -1 if floats is None else len(data) // 4) + data)
