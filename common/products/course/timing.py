"""timing.py: how fast is a program that somebody wrote to look fast?

The work     a problem of about the project's shape, drawn anew for each run from the system's random
             numbers, its scores shifted by a random number in each row, some of them -infinity
The rounds   one by one (rounds.c).  The judge sends an element for each row, the program computes and
             answers, and only then the judge says which row of the output is kept.  All kept rows,
             and all of the last output, are compared
The clock    the processor time that the kernel counts for a process on one core.  What the same
             rounds take when nothing is computed is taken off
The ceiling  a copy of the rows, or multiply-adds, between the runs; and where the solution is, it runs
             in turn too.  As long as the copy takes no time, or the solution does not reach the share
             for all points, more is measured; if that does not help, the machine is too busy"""
import os
import select
import shutil
import time

import numpy as np

from builder import ROOT, Refused, Shortage, kill_group
from cases import Wrong, attention_case, rows_case
from grade import Grader

LEAST_ROUNDS, RUNS, MOST_RUNS, TIMED_CPU_S, TIMED_MIB, MOST = 16, 5, 20, 60, 3072, 110


def fresh(op, shape):
    """Inputs that nobody has seen."""
    rng = np.random.default_rng()
    if op == "softmax":
        rows, cols = shape[0] + rng.integers(16), shape[1] + rng.integers(-64, 64)
        x = rng.uniform(-6, 6, (rows, cols)) + rng.uniform(-300, 300, (rows, 1))
        x[rng.random((rows, cols)) < 0.01] = -np.inf
        return {"x": x.astype(np.float32)}
    heads, n, d = shape
    n += int(rng.integers(-24, 24))
    q, k, v = (rng.standard_normal((1, heads, n, d)).astype(np.float32) for _ in range(3))
    q[..., 0], k[..., 0] = rng.uniform(-300, 300, (1, heads, n)), np.sqrt(d) + 0.01 * k[..., 0]
    return {"q": q, "k": k, "v": v}


def secret_rounds(inputs, length):
    """For each round what changes, an element of each row, and which row is kept."""
    rng, changed = np.random.default_rng(), [x for name, x in inputs.items() if name != "v"]
    n, width = changed[0].size // changed[0].shape[-1], changed[0].shape[-1]
    rounds = []
    for _ in range(length):
        change = np.empty((len(changed), n), [("at", "u4"), ("value", "f4")])
        change["at"], change["value"] = rng.integers(width, size=change.shape), rng.uniform(-4, 4, change.shape)
        rounds.append((change, int(rng.integers(n))))
    return rounds


def case_of(inputs, row=None):
    """The case of all rows, or of one alone."""
    if "x" in inputs:
        return rows_case("timed", "softmax", inputs["x"] if row is None else inputs["x"][row:row + 1])
    q, k, v = inputs.values()
    scale = 1 / np.sqrt(np.float32(q.shape[3]))
    if row is None:
        return attention_case("timed", q, k, v, None, 0, scale)
    head, i = divmod(row, q.shape[2])
    one = slice(head, head + 1)
    return attention_case("timed", q[:, one, i:i + 1], k[:, one], v[:, one], None, 0, scale)


def conversation(rounds):
    """Sends a round, and when that has been answered, the number of its row."""
    def talk(process, seconds):
        end = time.monotonic() + seconds
        to, answers = process.stdin.fileno(), process.stdout
        os.set_blocking(to, False)  # who does not read ends the conversation

        def send(data):
            try:
                return os.write(to, data) == len(data)
            except (BrokenPipeError, BlockingIOError):
                return False

        with process.stdin, answers:
            for change, kept in rounds:
                if not send(change.tobytes()):
                    return
                ready = select.select([answers], [], [], max(0.0, end - time.monotonic()))[0]
                if not ready or len(os.read(answers.fileno(), 1)) != 1:
                    kill_group(process.pid)
                    return
                if not send(np.uint32(kept).tobytes()):
                    return
    return talk


def wrong_with(inputs, rounds, got):
    """What is wrong with a row that was kept, or with the last round; or None."""
    inputs, y = {name: array.copy() for name, array in inputs.items()}, "y" if "x" in inputs else "o"
    changed = [x.reshape(-1, x.shape[-1]) for name, x in inputs.items() if name != "v"]
    width, rows = changed[0].shape[1], got.pop("rows", np.zeros(0))
    for i, (change, kept) in enumerate(rounds):
        for x, new in zip(changed, change):
            x[np.arange(len(x)), new["at"]] = new["value"]
        case, row = case_of(inputs, kept), rows[i * width:(i + 1) * width]
        if row.size != width:  # it ended early
            return Wrong("a round is missing", y)
        case.outputs = {y: case.outputs[y]}
        wrong = case.wrong({y: row.reshape(case.outputs[y][0].shape)})
        if wrong:
            return wrong
    case = case_of(inputs)
    for name, (want, _) in case.outputs.items():
        if name not in got or got[name].size != want.size:
            return Wrong(f"no {name} was written")
        got[name] = got[name].reshape(want.shape)
    return case.wrong(got)


class Timer(Grader):
    """A grader with a clock.  One program at a time: nothing else may run beside what is timed."""

    def __init__(self, options):
        super().__init__(options)
        self.others, self.yardstick = {}, self.folder()  # project -> where its solution lies
        self.rounds = f"{self.yardstick}/rounds.o"
        try:
            self.call([*self.compile[".c"], "-w", f"-I{ROOT}/common/core", f"-I{ROOT}/common/products", "-c",
                       f"{ROOT}/common/products/course/rounds.c", "-o", self.rounds], self.yardstick)
            self.readable.append(self.rounds)
            self.linked([self.rounds], "timed", self.yardstick)
        except Refused as error:
            raise Shortage(f"rounds.c {error}\n{error.log[:800]}") from error

    def make_timeable(self, folder):
        """Links the object there with rounds.c, whose main() it gets."""
        try:
            self.call(["objcopy", "--localize-symbol=main", "object.o"], folder)
            self.linked(["object.o", self.rounds], "timed", folder)
        except Refused as error:
            raise Refused("does not end with PROGRAM(...) as it was handed out", error.log) from error

    def run_timed(self, words, folder, talk=None):
        return self.jailed(["--core", "--cpu", str(TIMED_CPU_S), "--memory", str(TIMED_MIB)], words, folder,
                           TIMED_CPU_S + 300, (), talk)

    def fma(self):
        status, said, _ = self.run_timed([f"{self.yardstick}/timed", "fma"], self.yardstick)
        if status != 0:
            raise Shortage(f"the ceiling cannot be measured: {said[:200]}")
        return float(said)

    def seconds(self, project, folder, what, inputs, rounds):
        """Processor time of so many rounds; its results, or what went wrong."""
        out = self.folder()
        for name, array in inputs.items():
            array.tofile(out / name)
        shape = inputs["x"].shape if "x" in inputs else inputs["q"].shape[1:]
        status, said, taken = self.run_timed([f"{folder}/timed", project.op, *map(str, shape), str(out), what],
                                             out, conversation(rounds))
        try:
            got = {x: np.fromfile(out / x, np.float32) for x in ("y", "o", "lse", "rows") if (out / x).exists()}
        except (OSError, MemoryError):
            got = {}
        shutil.rmtree(out, ignore_errors=True)
        return taken, got, "" if status == 0 else self.died(status) or f"ended with status {status}: {said[-200:]}"

    def one_run(self, project, who, length):
        """Seconds of each for a byte or a flop."""
        inputs, found = fresh(project.op, project.shape), {}
        rounds, n = secret_rounds(inputs, length), next(iter(inputs.values())).size
        work = length * (8.0 * n if "copy" in who else 4.0 * n * inputs["q"].shape[2])
        for name in sorted(who, reverse=bool(length & 1)):
            taken, got, why = self.seconds(project, *who[name], inputs, rounds)
            if name in ("it", "solution"):
                why = why or wrong_with(inputs, rounds, got)
            if why:
                raise Refused(f"timed: {why}") if name == "it" else Shortage(f"{project.name}, {name}, timed: {why}")
            found[name] = taken / work
        return found

    def timed(self, project, folder):
        """{share, solution, ...}, or Refused."""
        self.make_timeable(folder)
        who = {"nothing": (self.yardstick, "nothing"), "it": (folder, "it")}
        if project.op == "softmax":
            who["copy"] = self.yardstick, "copy"
        if project.name in self.others:
            who["solution"] = self.others[project.name], "it"
        least, fma, length = dict.fromkeys(who, np.inf), 0.0, LEAST_ROUNDS + os.urandom(1)[0] % 16
        for run in range(1, MOST_RUNS + 1):
            fma = fma if "copy" in who else max(fma, self.fma())
            found = self.one_run(project, who, length)
            least = {name: min(least[name], found[name]) for name in who}
            net = {name: least[name] - least["nothing"] for name in who}
            best = net["copy"] if "copy" in who else 1e-9 / fma
            share, solution = (100 * best / net[x] if net.get(x, 0) > 0 else np.inf for x in ("it", "solution"))
            busy = f"a copy takes no longer than nothing ({best:.2g} s for a byte)" if best <= 0 else \
                f"the solution reaches {solution:.3g} % of {project.ceiling} here and now, and should reach " \
                f"{project.all_at:g} %" if "solution" in who and not project.all_at <= solution <= MOST else ""
            if run >= RUNS and not busy and share <= MOST:
                return {"share": round(share, 3), "solution": round(solution, 3) if "solution" in who else 0,
                        "ceiling": round(1e-9 / best, 3)}
        if busy:
            raise Shortage(f"{project.name}: {busy}: this machine is too busy, or none for speed marks")
        raise Refused(f"faster than possible: more than {MOST} % of {project.ceiling}")
