"""forms.py: the student's file and the forms of a task, from the source of an exercise.

The source is the solution, with marked regions.  The student's part lies between two lines that
the student sees too; the judge takes only that from a file that is handed in:

    /* >>> your part ... */    functions, includes, macros    /* <<< end of your part */

In it lies what the skeleton does not have:

    /* solution begin */
        what solves it
    /* skeleton
        what stands there in the student's file; a line // words becomes a comment
    solution end */

A course (course.py) varies a task.  A table names what stands in the source, form 0, and what stands
there in the other forms:

    /* forms of the task
     *     max_j x_j  | min_j x_j
     *     x[j] > m   | x[j] < m */

Where whole lines differ, #if TASK == 1, #elif, #else and #endif choose; in the source TASK is 0.  A
comment "; one of 16, 24, 32 */" behind a number lets the course choose the number.  A student sees
one form and one number."""
import re
import sys

PART, PART_END = "/* >>> your part", "/* <<< end of your part"
BEGIN, MIDDLE, END = "/* solution begin */", "/* skeleton", "solution end */"
TABLE = re.compile(r"^/\* forms of the task\n(.*?\*/)\n+", re.S | re.M)
IF = re.compile(r"#\s*if(?:n?def)?\b")
ONE_OF = re.compile(r"= (\d+)(.*?); one of ([\d, ]+) \*/")


def fail(text, status=2):
    print(f"{sys.argv[0].rpartition('/')[2].removesuffix('.py')}: {text}", file=sys.stderr)
    sys.exit(status)


def table_of(text):
    """The rows of the table, each a list of what stands in form 0, 1, ..."""
    found = TABLE.search(text)
    rows = re.findall(r"^ \* +(.*?)(?: \*/)?$", found[1], re.M) if found else []
    return [re.split(r"\s+\|\s+", row) for row in rows if "|" in row]


def forms_of(text):
    """How many forms the task has."""
    return max([1 + int(x) for x in re.findall(r"TASK == (\d+)", text)]
               + [len(row) for row in table_of(text)], default=1)


def replacing(text):
    """A function: (line, form) -> the line as the table has it."""
    rows = {row[0]: row for row in table_of(text)}
    words = [(r"(?<!\w)" if x[0].isalnum() else "") + re.escape(x) + (r"(?!\w)" if x[-1].isalnum() else "")
             for x in sorted(rows, key=len, reverse=True)]
    if not words:
        return lambda line, form: line
    pattern = re.compile("|".join(words))
    return lambda line, form: pattern.sub(lambda x: rows[x[0]][form], line)


def formed(text, task=0, choose=None, answer=None):
    """One form of the text.  choose(numbers) picks a number.  answer: the form of what lies
    between /* solution begin */ and /* skeleton, if another than `task`."""
    lines, stack, here, replaced = [], [], task, replacing(text)
    for line in TABLE.sub("", text).splitlines():
        word = line.strip()
        if word in (BEGIN, MIDDLE):
            here = answer if word == BEGIN and answer is not None else task
        if IF.match(word):
            stack.append("TASK" in word and [False, False])
        state = stack[-1] if stack else False
        if state is not False and word.startswith("#"):
            found = re.fullmatch(r"#(?:el)?if TASK == (\d+)", word)
            if found or word == "#else":
                state[1] = not state[0] and (not found or int(found[1]) == here)
                state[0] |= state[1]
            elif word == "#endif":
                stack.pop()
            continue
        if word.startswith("#endif") and stack:
            stack.pop()
        if all(state is False or state[1] for state in stack):
            lines.append(ONE_OF.sub(lambda x: f"= {choose(x[3].split(', ')) if choose else x[1]}"
                                    f"{x[2]} */", replaced(line, here)))
    return "\n".join(lines) + "\n"


def skeleton_of(text, path):
    """The text without its solutions."""
    lines, region = [], None
    for number, line in enumerate(text.splitlines(), 1):
        word = line.strip()
        if word in (BEGIN, MIDDLE, END):
            order = {None: BEGIN, BEGIN: MIDDLE, MIDDLE: END}
            if order[region] != word:
                fail(f"{path}:{number}: '{word}' where '{order[region]}' belongs")
            region = None if word == END else word
        elif region is None:
            lines.append(line)
        elif region == MIDDLE:
            lines.append(re.sub(r"^(\s*)// (.*)$", r"\1/* \2 */", line))
    if region or BEGIN not in text:
        fail(f"{path}: no complete region '{BEGIN} ... {MIDDLE} ... {END}'")
    return "\n".join(lines) + "\n"


def parts_of(text):
    """A file as (before, the student's part, behind), or None where the two lines are not there
    once each.  Both belong to what is given."""
    lines = text.split("\n")
    first, last = ([i for i, line in enumerate(lines) if line.lstrip().startswith(mark)]
                   for mark in (PART, PART_END))
    if len(first) != 1 or len(last) != 1 or first > last:
        return None
    return lines[:first[0] + 1], lines[first[0] + 1:last[0]], lines[last[0]:]
