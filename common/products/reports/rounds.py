"""rounds.py: times methods beside each other so that none has an advantage.

Cold: one call of each method, then the next round in another order, before each call the L2
cache is flushed by reading a large array.  Sustained: each method runs back to back for a
while, in turn.  Every method makes the same number of calls.  When the median of a method
is more than 5 % above its minimum, everything is measured again, and of up to three
attempts the one with the fewest such methods counts.

The clock is an object with `flush()`, `record()` (a mark in the device's queue),
`seconds(begin, end)` and `wait()`; a test passes one without a GPU.
"""
import random
import statistics
import time

SPREAD = 1.05  # a median above this many times the minimum is measured again
ATTEMPTS = 3


class Times(list):
    """Sorted seconds per call of one method in one regime."""

    def __init__(self, seconds, calls, regime):
        super().__init__(sorted(seconds))
        self.calls, self.regime = calls, regime
        self.median, self.least = statistics.median(self), self[0]
        self.stable = self.median <= SPREAD * self.least


class CudaClock:
    """Marks in the queue of a GPU; flush: a large array that is read before each cold call,
    which takes longer than to launch anything, so no call waits for the CPU.  Reading leaves no
    dirty lines that the timed call would have to write back."""

    def __init__(self, torch, flush):
        self.torch, self.flush, self.wait = torch, flush.sum, torch.cuda.synchronize

    def record(self):
        event = self.torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    @staticmethod
    def seconds(begin, end):
        return begin.elapsed_time(end) * 1e-3


class CpuClock:
    """Marks in the time of a process; a CPU's cache is not flushed."""

    flush = wait = staticmethod(lambda: None)
    record = staticmethod(time.perf_counter)
    seconds = staticmethod(lambda begin, end: end - begin)


def once(clock, call, calls=1, flush=True):
    """Marks around `calls` calls."""
    if flush:
        clock.flush()
    begin = clock.record()
    for _ in range(calls):
        call()
    return begin, clock.record()


def first_calls(clock, methods, calls, flush):
    """Seconds of one call of each method together."""
    marks = [once(clock, call, calls, flush) for call in methods.values()]
    clock.wait()
    return max(sum(clock.seconds(*pair) for pair in marks) / calls, 1e-9)


def one_attempt(clock, methods, rounds, calls, flush, order):
    """{name: [seconds per call]}: `rounds` rounds in an order drawn for each."""
    marks = {name: [] for name in methods}
    for _ in range(rounds):
        for name in order.sample(sorted(methods), len(methods)):
            if not flush:  # the clock settles at this method's power first
                for _ in range(max(1, calls // 4)):
                    methods[name]()
            marks[name].append(once(clock, methods[name], calls, flush))
    clock.wait()
    return {name: [clock.seconds(*pair) / calls for pair in pairs]
            for name, pairs in marks.items()}


def best_attempt(clock, methods, rounds, calls, regime):
    """{name: Times} of up to three attempts: of the one with the fewest unstable methods."""
    order, attempts = random.Random(1), []
    while len(attempts) < ATTEMPTS and not (attempts and attempts[-1][0] == 0):
        now = {name: Times(seconds, calls * rounds, regime) for name, seconds in one_attempt(
            clock, methods, rounds, calls, regime == "cold", order).items()}
        attempts.append((sum(not times.stable for times in now.values()), now))
    return min(attempts, key=lambda attempt: attempt[0])[1]


def cold(clock, methods, seconds, least=5, most=20):
    """{name: Times}, one call at a time after a flush of the cache."""
    for call in methods.values():
        call()
    rounds = int(seconds / first_calls(clock, methods, 1, True))
    return best_attempt(clock, methods, max(least, min(most, rounds)), 1, "cold")


def sustained(clock, methods, seconds, blocks=3):
    """{name: Times}, calls back to back: `blocks` blocks of each method in turn."""
    calls = int(seconds / blocks / first_calls(clock, methods, 2, False))
    return best_attempt(clock, methods, blocks, max(4, min(400, calls)), "sustained")
