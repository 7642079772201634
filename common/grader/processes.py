"""processes.py: the programs that the grader starts, none of which outlives it.

    status, out, err = run(command, seconds, cwd=..., env=..., log=...)

runs one in a session of its own; at its end, or after `seconds`, everything that it started
is killed.  kill_all(), and a signal after on_signals(), end all of them and let no new one
start.  Files that must not stay are removed by the caller, who sees Stopped."""
import os
import signal
import subprocess
import threading

LATE = "late"  # the status of a program that took too long


class Stopped(Exception):
    """No program may be started any more."""


_lock, _live, _stopped = threading.Lock(), set(), threading.Event()


def _kill(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def run(command, seconds, cwd=None, env=None, log=None):
    """Its exit status or LATE, and what it wrote, unless that went into the file `log`."""
    with _lock:
        if _stopped.is_set():
            raise Stopped
        process = subprocess.Popen(  # pylint: disable=consider-using-with
            command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, start_new_session=True,
            text=True, errors="replace", stdout=log or subprocess.PIPE,
            stderr=log or subprocess.PIPE)
        _live.add(process)
    late = False
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        late = True
        _kill(process)
        out, err = process.communicate()
    finally:
        _kill(process)
        process.wait()
        with _lock:
            _live.discard(process)
    if _stopped.is_set():
        raise Stopped
    return LATE if late else process.returncode, out or "", err or ""


def kill_all():
    _stopped.set()
    with _lock:
        for process in _live:
            _kill(process)


def on_signals(handler):
    """TERM, INT and HUP call handler(number); what is ignored stays ignored (nohup)."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, frame: handler(number))
