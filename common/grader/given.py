"""given.py: is the code that an exercise gives still in its place?

Both are compared behind the preprocessor, without their #include lines, without white space and
without what stands in strings.  So given code counts only where it is compiled: not in a comment,
not behind #if 0, not in a string, and not under a name that a macro changes.

Code is compared item by item: a function or a declaration of the file.  A given item must be an item
of the submission, not a part of another one: not in a namespace, not under a template.  Where the
student writes, an item begins and ends as it was given, with all its other lines in order."""
import re

REGION = re.compile(r"/\* solution begin \*/.*?solution end \*/", re.S)
INCLUDE = re.compile(r"^[ \t]*(?:#|%:)[ \t]*include\b([^\n]*)$", re.M)
STRING = re.compile(r'R"([^\s()\\]*)\((?:.|\n)*?\)\1"|"(?:[^"\\\n]|\\.)*"|'
                    r"(?<![0-9a-fA-F])'(?:[^'\\\n]|\\.)+'")
STUDENT = "THE_STUDENTS_PART;"
# What could give main() another name, or name another function so.
WATCHED = ("main", "stage_main", "asm", "__asm", "__asm__", "redefine_extname")


def without_includes(text):
    """A line that goes on behind a backslash is one line."""
    return INCLUDE.sub("", text.replace("\r\n", "\n").replace("\\\n", ""))


def included(text):
    """What the #include lines name, without quotes."""
    found = INCLUDE.findall(text.replace("\r\n", "\n").replace("\\\n", ""))
    return [x.strip().split(">")[0].strip('<"').split('"')[0] for x in found]


def bare(text):
    return re.sub(r"\s+", "", STRING.sub('""', text))


def items_of(text):
    """The functions and declarations of a file, each a list of lines without white space."""
    items, lines, word, depth = [], [], "", 0
    for line in STRING.sub('""', text).splitlines():
        for letter in re.sub(r"\s+", "", line):
            word += letter
            depth += (letter in "{([") - (letter in "})]")
            if depth <= 0 and letter in ";}":
                items.append(lines + [word])
                lines, word = [], ""
        if word:
            lines, word = lines + [word], ""
    return [x for x in items + [lines] if x and x != [";"]]


def given_items(solution, preprocess):
    """The items that are given."""
    text = preprocess(without_includes(REGION.sub(STUDENT, solution)))
    return [x for x in items_of(text or "") if x != [STUDENT]]


def is_item(given, text):
    """Is this item of a submission, in one line, the given one?"""
    if not any(STUDENT in line for line in given):
        return text == "".join(given)
    first, *middle, last = [x for line in given for x in line.split(STUDENT)]
    if not text.startswith(first) or not text.endswith(last):
        return False
    here, end = len(first), len(text) - len(last)
    for line in middle:
        found = text.find(line, here, end)
        if found < 0:
            return False
        here = found + len(line)
    return here <= end


def changed_item(given, submission, preprocess):
    """The first line of the first given item that a submission does not have, in this order, or None.
    preprocess(text) is None where that cannot be told without the includes."""
    text = preprocess(without_includes(submission))
    if text is None:
        return "#include"
    items, here = ["".join(x) for x in items_of(text)], 0
    for item in given:
        while here < len(items) and not is_item(item, items[here]):
            here += 1
        if here == len(items):
            return item[0][:100]
        here += 1
    return None


def counts(text):
    words = re.findall(r"[A-Za-z_]\w*", STRING.sub('""', text))
    return {word: words.count(word) for word in WATCHED}


def strange_word(solution, submission, expand):
    """A word of WATCHED that is not where it was given, or None.  expand(text, headers) is the text
    behind the preprocessor, with the macros of these headers, but not their code."""
    texts = [expand(without_includes(x), included(x)) for x in (solution, submission)]
    if None in texts:
        return "#include"
    given, found = map(counts, texts)
    return next((word for word in WATCHED if found[word] != given[word]), None)
