"""handout.py: what students get of a repository: no solutions, no stage that is still to come.

    without_hidden(repository, stages)

takes the rest away from a copy.  In its pages a link whose file is gone becomes plain text, and a
command that needs what is gone says so; `make help` lists only what works."""
import re
import shutil

HIDDEN = ["tests", ".ci", ".github", "common/products/course/course.py", "common/products/course/handout.py",
          "common/products/book/slides.py", "notes/exam.md",
          "common/products/course/adapters",
          "common/products/course/pages",
          "notes/instructor.md", "notes/checkpoints.md", "notes/grading.md", "notes/planted_bugs.md",
          "notes/contributing.md", "notes/coverage.md"]
STAYS = "tests/fixture"  # the sentence of `make map`
# Verbs of `make` (regular expressions) that need what is hidden, or so many stages.
HIDDEN_VERBS = ["course", "grade", "slides", "book", "book-test", "tables",
                "tables-check", "test", "test-long", "sanitize", "machines", "fuzz", "differential", "gallery", "smallest"]
VERBS_FROM = {3: ["map", "plot"], 4: ["mpi", "library", "install"], 5: [r"diff RUNG=\w+", "cuda", "profile 5"]}

LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")
SOLUTIONS = re.compile(r"(Solutions are in\s+|; )\[[^\]]*\]\([^)]*solutions/?\)( are there)?(\.\s+)?")


def is_gone(page, target):
    """Does a link on this page lead to no file?  Links to other sites and within a page do not."""
    return not re.match(r"[a-z]+:|#", target) and not (page.parent / target.split("#")[0]).exists()


def hidden_verbs(stages):
    return HIDDEN_VERBS + [verb for first, some in VERBS_FROM.items() if len(stages) < first for verb in some]


def shortened(page, verbs):
    """The text of a page, without links and commands that lead nowhere."""
    text = SOLUTIONS.sub(lambda x: ". " if x[1] == "; " else "", page.read_text(encoding="utf-8"))
    text = re.sub(rf"^make ({verbs})\b.*\n", "", text, flags=re.M)
    text = re.sub(rf"(`[^`\n]*\bmake\s+({verbs})(?![\w-])[^`]*`)", r"\1 (not in this copy)", text)
    text = LINK.sub(lambda link: link[1] if is_gone(page, link[2]) else link[0], text)
    return re.sub(r"For teachers: [^.]*\.\s", "", text)


def short_makefile(text, stages):
    """Names the stages that are there, in its help the verbs that work, and refuses the others."""
    verbs = hidden_verbs(stages)
    refused = "\n".join((f"ifneq ($(filter {' '.join(x for x in verbs if ' ' not in x)},$(firstword $(MAKECMDGOALS))),)",
                         "$(error this copy has no `make $(firstword $(MAKECMDGOALS))`; `make help` says what it has)",
                         "endif"))
    text = re.sub(r"^STAGES := .*$", f"STAGES := {' '.join(stages)}\n{refused}", text, flags=re.M)
    text = re.sub(rf"^#   make ({'|'.join(verbs)}) [^\n]*\n", "", text, flags=re.M)
    return re.sub(r"^# (Test|Use it)\n#\n", "", text, flags=re.M)  # no verb is left


def without_hidden(repository, stages):
    """Takes from a copy what students must not have, and the stages still to come."""
    (repository / STAYS).rename(repository / "fixture")
    for path in (repository / name for name in HIDDEN):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    (repository / STAYS).parent.mkdir()
    (repository / "fixture").rename(repository / STAYS)
    for stage in sorted(x.name for x in repository.glob("0*")):
        shutil.rmtree(repository / stage / "exercises/solutions" if stage in stages else repository / stage, ignore_errors=True)
    makefile, verbs = repository / "Makefile", "|".join(hidden_verbs(stages))
    makefile.write_text(short_makefile(makefile.read_text(encoding="utf-8"), stages), encoding="utf-8")
    for page in sorted(repository.rglob("*.md")):
        page.write_text(shortened(page, verbs), encoding="utf-8")
