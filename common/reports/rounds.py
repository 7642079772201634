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

    @property
    def median(self):
        """The middle one."""
        return statistics.median(self)

    @property
    def least(self):
        """The smallest one."""
        return self[0]

    @property
    def stable(self):
        """Whether the median is at most 5 % above the minimum."""
        return self.median <= SPREAD * self[0]


class CudaClock:
    """Marks in the queue of a GPU; flush: a large array that is read before each cold call,
    which takes longer than to launch anything, so no call waits for the CPU."""

    def __init__(self, torch, flush):
        self.torch, self.array = torch, flush

    def flush(self):
        """Reading leaves no dirty lines that the timed call would have to write back."""
        self.torch.sum(self.array)

    def record(self):
        """A mark."""
        event = self.torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def wait(self):
        """Until everything has run."""
        self.torch.cuda.synchronize()

    @staticmethod
    def seconds(begin, end):
        """Between two marks."""
        return begin.elapsed_time(end) * 1e-3


class CpuClock:
    """Marks in the time of a process; a CPU's cache is not flushed."""

    flush = wait = staticmethod(lambda: None)
    record = staticmethod(time.perf_counter)
    seconds = staticmethod(lambda begin, end: end - begin)


def number_of_calls(first, seconds, least, most):
    """The same for all methods: as many rounds as fit into `seconds`; first: the time of one
    call of each."""
    return max(least, min(most, int(seconds / max(sum(first), 1e-9))))


def once(clock, call, calls=1, flush=True):
    """Marks around `calls` calls."""
    if flush:
        clock.flush()
    begin = clock.record()
    for _ in range(calls):
        call()
    return begin, clock.record()


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


def best_attempt(attempt, regime, calls):
    """Up to three attempts; the one with the fewest unstable methods."""
    best = None
    for _ in range(ATTEMPTS):
        now = {name: Times(seconds, calls * len(seconds), regime)
               for name, seconds in attempt().items()}
        unstable = sum(not times.stable for times in now.values())
        if best is None or unstable < best[0]:
            best = unstable, now
        if not unstable:
            break
    return best[1] if best else {}


def cold(clock, methods, seconds, least=5, most=20):
    """{name: Times}, one call at a time after a flush of the cache."""
    order = random.Random(1)
    for call in methods.values():
        call()
    first = [once(clock, call) for call in methods.values()]
    clock.wait()
    n = number_of_calls([clock.seconds(*pair) for pair in first], seconds, least, most)
    return best_attempt(lambda: one_attempt(clock, methods, n, 1, True, order), "cold", 1)


def sustained(clock, methods, seconds, blocks=3):
    """{name: Times}, calls back to back: `blocks` blocks of each method in turn."""
    order = random.Random(1)
    first = [once(clock, call, 2, False) for call in methods.values()]
    clock.wait()
    calls = number_of_calls([clock.seconds(*pair) / 2 for pair in first], seconds / blocks,
                            4, 400)
    return best_attempt(lambda: one_attempt(clock, methods, blocks, calls, False, order),
                        "sustained", calls)
