"""given.py: is the code that an exercise gives still in its place?

Both are compared behind the preprocessor, without their #include lines, without white space and
without what stands in strings.  So a given line counts only where it is compiled: not in a comment,
not behind #if 0, not in a string, and not under a name that a macro changes."""
import re

REGION = re.compile(r"/\* solution begin \*/.*?solution end \*/", re.S)
INCLUDE = re.compile(r"^[ \t]*(?:#|%:)[ \t]*include\b[^\n]*$", re.M)
STRING = re.compile(r'R"([^\s()\\]*)\((?:.|\n)*?\)\1"|"(?:[^"\\\n]|\\.)*"')


def without_includes(text):
    """A line that goes on behind a backslash is one line."""
    return INCLUDE.sub("", text.replace("\r\n", "\n").replace("\\\n", ""))


def bare(text):
    return re.sub(r"\s+", "", STRING.sub('""', text))


def given_lines(solution, preprocess):
    """The lines outside of the student's part, each without white space."""
    text = preprocess(without_includes(REGION.sub("", solution)))
    return [bare(line) for line in (text or "").splitlines() if line.strip()]


def changed_line(lines, submission, preprocess):
    """The first of the given lines that a submission does not have, in this order, or None.
    preprocess(text) is None where that cannot be told without the includes."""
    text = preprocess(without_includes(submission))
    if text is None:
        return "#include"
    text, here = bare(text), 0
    for line in lines:
        found = text.find(line, here)
        if found < 0:
            return line
        here = found + len(line)
    return None
