"""handout.py: what students get of a repository: no solutions, no stage that is still to come.

    without_hidden(repository, stages)

takes the rest away from a copy, and every trace of it from the pages: a link whose file is gone
becomes plain text, a sentence or an item about a hidden page goes, and `make help` lists only
what still works."""
import re
import shutil

# What students do not get.
HIDDEN = ["tests", ".ci", ".github", "common/grader/course.py", "common/grader/handout.py",
          "common/grader/board.py", "common/grader/similar.py",
          "common/grader/adapters", "notes/instructor.md", "notes/checkpoints.md",
          "notes/grading.md",
          "notes/planted_bugs.md"]
# Verbs of `make` that need one of these, or a stage with its number.
HIDDEN_VERBS = ["course", "grade", "grade-projects", "board", "similar", "book", "tables"]
VERBS_FROM = {3: ["map", "plot"], 4: ["mpi", "library", "install"], 5: ["diff RUNG=8", "cuda", "profile 5"]}

LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")
# About what only an instructor has; between two MARKs is a link to one of HIDDEN.
MARK = "\x01"
HIDDEN_LINK = f"{MARK}[^{MARK}]*{MARK}"
SENTENCES = [
    (re.compile(r"Solutions\s+\w+\s+in\s+\[[^\]]*\]\([^)]*solutions/?\)[^.]*\.\s+"), ""),
    (re.compile(r"\s+in\s+\[[^\]]*\]\([^)]*solutions/?\)"), ""),
    (re.compile(rf"^- {HIDDEN_LINK}[^\n]*(\n  [^\n]*)*\n", re.M), ""),  # an item of a list
    (re.compile(rf"^For teachers: {HIDDEN_LINK}[^\n]*(\n[^\n]+)*\n\n", re.M), ""),
    (re.compile(rf"; for a class there are\s+{HIDDEN_LINK} and a grader"), ""),
]


def is_gone(page, target):
    """Does a link on this page lead to no file?  Links to other sites and within a page do not."""
    if re.match(r"[a-z]+:|#", target):
        return False
    return not (page.parent / target.split("#")[0]).exists()


def gone(repository):
    """The links of all pages that lead nowhere: (page, text, target)."""
    return [(page, link[1], link[2]) for page in sorted(repository.rglob("*.md"))
            for link in LINK.finditer(page.read_text(encoding="utf-8"))
            if is_gone(page, link[2])]


def without_links(repository, page):
    """The text of a page, without what is gone."""
    hidden = {(repository / name).resolve() for name in HIDDEN}

    def shortened(link):
        if not is_gone(page, link[2]) or "solutions" in link[2]:
            return link[0]
        target = (page.parent / link[2].split("#")[0]).resolve()
        return f"{MARK}{link[1]}{MARK}" if hidden & {target, *target.parents} else link[1]

    text = LINK.sub(shortened, page.read_text(encoding="utf-8"))
    for about, instead in SENTENCES:
        text = about.sub(instead, text)
    return LINK.sub(lambda link: link[1] if is_gone(page, link[2]) else link[0],
                    text.replace(MARK, ""))


def rewrite(path, change):
    path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")


def short_makefile(text, stages):
    """Names the stages that are there, and in its help the verbs that work."""
    text = re.sub(r"^STAGES := .*$", "STAGES := " + " ".join(stages), text, flags=re.M)
    for part in ("Test", "Use it") if len(stages) < 4 else ("Test",):
        text = re.sub(rf"^# {part}\n(#   [^\n]*\n)+#\n", "", text, flags=re.M)
    verbs = HIDDEN_VERBS + [verb for first, some in VERBS_FROM.items() if len(stages) < first
                            for verb in some]
    return re.sub(rf"^#   make ({'|'.join(verbs)}) [^\n]*\n", "", text, flags=re.M)


def without_hidden(repository, stages):
    """Takes from a copy what students must not have, and the stages still to come."""
    for name in HIDDEN:
        path = repository / name
        if path.is_dir():
            shutil.rmtree(path)
        elif path.exists():
            path.unlink()
    for stage in sorted(x.name for x in repository.glob("0*")):
        for folder in ("solutions", "projects/solutions"):
            shutil.rmtree(repository / stage / "exercises" / folder, ignore_errors=True)
        if stage not in stages:
            shutil.rmtree(repository / stage)
    rewrite(repository / "Makefile", lambda text: short_makefile(text, stages))
    for page in sorted(repository.rglob("*.md")):
        rewrite(page, lambda _, page=page: without_links(repository, page))
