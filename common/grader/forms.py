"""forms.py: the student's file and the forms of a task, from the source of an exercise.

The source is the solution, with marked regions:

    /* solution begin */
        what solves it
    /* skeleton
        what stands there in the student's file; a line // words becomes a comment
    solution end */

A course (course.py) varies a task.  #if TASK == 1, #elif, #else and #endif choose between
its forms; here TASK is 0.  A comment "; one of 16, 24, 32 */" behind a number lets the
course choose the number.  A student sees one form and one number."""
import re
import sys

BEGIN, MIDDLE, END = "/* solution begin */", "/* skeleton", "solution end */"
IF = re.compile(r"#\s*if(?:n?def)?\b")
ONE_OF = re.compile(r"= (\d+)(.*?); one of ([\d, ]+) \*/")


def fail(text):
    print(f"exercises: {text}", file=sys.stderr)
    sys.exit(2)


def forms_of(text):
    """How many forms the task has; the text names the last one."""
    return 1 + max((int(x) for x in re.findall(r"TASK == (\d+)", text)), default=0)


def formed(text, task=0, choose=None, answer=None):
    """One form of the text.  choose(numbers) picks a number.  answer: the form of what lies
    between /* solution begin */ and /* skeleton, if another than `task`."""
    lines, stack, here = [], [], task
    for line in text.splitlines():
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
                                    f"{x[2]} */", line))
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
