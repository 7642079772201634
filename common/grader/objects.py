"""objects.py: what a compiled exercise may hold: code that main() calls, and its data.

Who runs before main() need not use the code that an exercise gives.  So an object file is refused
that asks for it: a constructor, a variable with a start value that is computed, a function chosen at
load time, a section that the linker or the loader reads.  Only ELF files can be read; where objects
are something else, nothing is refused."""
import re
import struct

SECTIONS, SYMBOLS, STARTED, ALLOCATED, IFUNC = 0x28, (2, 11), (14, 15, 16), 2, 10
BEFORE_MAIN = re.compile(r"\.(init_array|fini_array|preinit_array|ctors|dtors|init|fini)(\.|$)")
ORDINARY = re.compile(r"\.(text|s?data|s?rodata|s?bss|ldata|lrodata|lbss|tdata|tbss|data\.rel|eh_frame|"
                      r"gcc_except_table|ARM\.exidx|ARM\.extab|note\.[\w.-]+)(\.[\w.$<>-]*)?")
RUNS_FIRST = "runs code before main(): a constructor, or a variable whose start value is computed; " \
             "compute it in a function"


class Section:
    """Of the header at `at`; the 64-bit form of ELF."""

    def __init__(self, data, at):
        (self.name, self.type, self.flags, _, self.offset, self.size, self.link, self.info, _,
         self.entry) = struct.unpack_from("<IIQQQQIIQQ", data, at)


def sections_of(data):
    """The sections and their names.  Numbers that do not fit into the header lie in section 0."""
    start, = struct.unpack_from("<Q", data, SECTIONS)
    step, count, names = struct.unpack_from("<HHH", data, 0x3a)
    first = Section(data, start)
    count, names = count or first.size, first.link if names == 0xffff else names
    found = [Section(data, start + i * step) for i in range(count)]
    text = found[names]
    for section in found:
        begin = text.offset + section.name
        section.words = data[begin:data.index(0, begin)].decode("ascii", "replace")
    return found


def chosen_at_load(data, section):
    """Is one of these symbols a function that is chosen when the program is loaded?"""
    return any(data[at + 4] & 15 == IFUNC
               for at in range(section.offset, section.offset + section.size, section.entry))


def refused(path):
    """Why the object file may not be linked, or ""."""
    data = path.read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        return ""
    try:
        for section in sections_of(data):
            if section.type in STARTED or BEFORE_MAIN.match(section.words):
                return RUNS_FIRST
            if section.type in SYMBOLS and chosen_at_load(data, section):
                return "has a function that is chosen before main() (ifunc)"
            if section.flags & ALLOCATED and not ORDINARY.fullmatch(section.words):
                return f"has a section of its own, {section.words[:40]!r}"
    except (struct.error, ValueError, IndexError) as error:
        return f"is no object file that can be read: {error}"
    return ""
