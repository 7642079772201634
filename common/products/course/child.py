"""child.py: the judge's side of a student's process (child.c): it sends one call and gets its answer.

    with Child(jail, program, folder) as child:
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
import time

import numpy as np

CALL, ASK, TIMED, READY = 1, 2, 3, 4
CPU_S, WALL_S, MEMORY_MIB, MOST_ASKED, MOST_THREADS = 3, 20, 1024, 200000, 256
PRINTED = 4000


class Wrong(Exception):
    """What is wrong with an answer: why; and where, got, want, allowed of the first wrong element."""

    def __init__(self, why, where="", got=0.0, want=0.0, allowed=0.0):
        super().__init__(why)
        self.why, self.where, self.got, self.want, self.allowed = why, where, got, want, allowed

    def __str__(self):
        return f"{self.where}: {self.why}" if self.where else self.why


class Died(Wrong):
    """The process has ended, or had to be ended."""


class Child:
    """options: of jail.c.  ceiling(threads): the judge's yardstick, multiply-adds a second.  gpu(**inputs): the
    same kernel on a GPU (Judge.on_gpu).  share: percent of a ceiling, where a case measured it.  shared: the mean of
    the threads' time as a share of the busiest one's, in the last timed call."""

    def __init__(self, jail, program, folder, options=(), ceiling=None, gpu=None):
        self.many = "--threads" in options
        self.words, self.ceiling, self.gpu = pathlib.Path(folder) / "printed", ceiling, gpu
        self.share, self.spent = None, None  # spent: during a timed call: processor seconds of each thread
        ours, theirs = socket.socketpair()
        with theirs, open(self.words, "wb") as words:
            self.process = subprocess.Popen(
                [jail, "--cpu", "600", "--memory", str(MEMORY_MIB), *options, str(program)],
                stdin=theirs, stdout=words, stderr=words, start_new_session=True, env={}, cwd="/")
        self.socket, self.clock, self.until = ours, ~self.process.pid << 3 | 2, (0.0, 0.0)
        self.socket.setblocking(False)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()
        self.process.kill()
        self.process.wait()

    def printed(self):
        """What it has printed so far."""
        with open(self.words, "rb") as words:
            return words.read(PRINTED).decode("utf-8", errors="replace")

    # --- bytes ---

    def cpu(self):
        try:
            return time.clock_gettime(self.clock)
        except OSError:
            return 0.0

    def ended(self, why=""):
        """Raises Died, with the reason."""
        if not why:
            try:
                self.process.wait(1)
            except subprocess.TimeoutExpired:
                pass
        status = self.process.poll()
        self.process.kill()
        self.process.wait()
        if why or status in (-signal.SIGXCPU, -signal.SIGKILL):
            raise Died(why or "took too long")
        if status is not None and status < 0:
            hint = " (an index out of bounds?)" if status == -signal.SIGSEGV else ""
            raise Died(f"crashed: {signal.strsignal(-status)}{hint}")
        said = self.printed().strip().splitlines() or [""]
        raise Died(f"ended with status {status}: {said[-1][:300]}" if said[-1] else
                   f"ended with status {status} and without an answer")

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

    def timed(self, threads, numbers, inputs, lengths):
        """The outputs, and the processor seconds of the busiest thread between the request and the whole answer,
        after which it is stopped.  Of a thread that has ended they are those of a moment before; all together they
        had no less than their sum over all threads allowed."""
        def begin():
            self.spent, self.before, self.begin = {}, self.threads(), self.cpu()

        try:
            found = self.call(numbers, inputs, lengths, begin=begin)
            self.spent |= self.threads()
            busiest = max(x - self.before.get(thread, 0) for thread, x in self.spent.items())
            total = self.cpu() - self.begin
        finally:
            self.spent = None
        self.shared = total / threads / max(busiest, total / threads)
        return found, max(busiest, total / threads)

    def call(self, numbers, inputs, lengths, serve=None, begin=None):
        """The outputs, arrays of these lengths.  Between calls the process stands still."""
        os.kill(self.process.pid, signal.SIGCONT)
        arrays = [np.ascontiguousarray(x, np.float32) for x in inputs]
        self.until = self.cpu() + CPU_S, time.monotonic() + WALL_S
        sizes = [x.size for x in arrays] + [int(n) for n in lengths]
        self.send(struct.pack(f"=4i{len(numbers) + len(sizes)}q", TIMED if begin else CALL, len(numbers),
                              len(arrays), len(lengths), *map(int, numbers), *sizes)
                  + b"".join(x.tobytes() for x in arrays))
        if begin:
            self.expect(READY)
            begin()
            self.send(struct.pack("=i", READY))
        for _ in range(MOST_ASKED):
            kind, = struct.unpack("=i", self.receive(4))
            if kind != ASK:
                break
            self.reply(serve)
        else:
            self.ended("asked without end")
        if kind != CALL:
            self.ended("answered out of turn")
        data = np.frombuffer(self.receive(4 * sum(sizes[len(arrays):])), np.float32)
        os.kill(self.process.pid, signal.SIGSTOP)
        return np.split(data, np.cumsum(sizes[len(arrays):])[:-1]) if lengths else []

    def expect(self, kind):
        if struct.unpack("=i", self.receive(4)) != (kind,):
            self.ended("answered out of turn")

    def reply(self, serve):
        what, a, b, n = struct.unpack("=4q", self.receive(32))
        if serve is None or not 0 <= n <= 1 << 22:
            self.ended("asked for what this exercise does not have")
        floats = np.frombuffer(self.receive(4 * n), np.float32)
        given = serve(chr(what & 127), a, b, floats)
        if given is None:
            self.send(struct.pack("=q", -1))
        else:
            given = np.ascontiguousarray(given, np.float32)
            self.send(struct.pack("=q", given.size) + given.tobytes())
