"""machine.py: what this machine lacks: room, memory, processes.  No submission is to blame for it."""
import errno
import fcntl
import os
import pathlib
import re
import shutil
import tempfile

ROOM, MEMORY = 64 << 20, 2 << 30  # bytes that one submission may need at once
LACKING = (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE,
           errno.EIO)
LACKING_WORDS = re.compile(
    "No space left|quota exceeded|Cannot allocate memory|out of memory|memory exhausted|"
    "temporarily unavailable|Too many open files|Input/output error|signal terminated program|"
    "cannot execute")


class Shortage(Exception):
    """This machine lacks something; no submission is to blame."""


def free_memory():
    """Bytes that this machine, or the group of processes we are in, can still give."""
    try:
        text = pathlib.Path("/proc/meminfo").read_text(encoding="ascii")
        free = int(re.search(r"MemAvailable:\s+(\d+) kB", text)[1]) << 10
    except (OSError, TypeError):
        return None
    group = pathlib.Path("/sys/fs/cgroup")
    try:
        most = int((group / "memory.max").read_text(encoding="ascii"))
        free = min(free, most - int((group / "memory.current").read_text(encoding="ascii")))
    except (OSError, ValueError):
        pass
    return free


def free_room(place):
    found = os.statvfs(place)
    return found.f_bavail * found.f_frsize if found.f_favail > 64 or not found.f_files else 0


def jobs_here(place):
    """How many submissions at once: one for each core, if memory and room suffice."""
    memory, room = free_memory(), free_room(place)
    if room < ROOM:
        raise Shortage(f"{place.parent} has {room >> 20} MiB of room left, a submission may "
                       f"need {ROOM >> 20}; TMPDIR=folder chooses another place")
    if memory is not None and memory < MEMORY // 2:
        raise Shortage(f"{memory >> 20} MiB of memory are free, a submission may need "
                       f"{MEMORY >> 20}")
    jobs = min(os.cpu_count() or 1, room // ROOM)
    return max(1, jobs if memory is None else min(jobs, memory // MEMORY))


def remove_stale():
    """Places that a grader left which was killed and could not tidy up: ours, and not
    locked by a grader that runs."""
    for place in pathlib.Path(tempfile.gettempdir()).glob("grade.*"):
        try:
            if place.is_symlink() or place.stat().st_uid != os.getuid():
                continue
            with open(place / "lock", "rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(place, ignore_errors=True)
        except OSError:
            continue
