"""students.py: a class to try the grader on: right answers, known mistakes, and mischief.

    students.py FOLDER [STUDENTS]       so many students, each with all exercises

MISTAKES are planted bugs in the form that they take in an exercise, one of each family of cases that an
exercise has; the family named beside each must see it.  MISCHIEF must get nothing for the exercise; beside
each stands a part of what the grader says.  HONEST files are right, however they look."""
import pathlib
import re
import sys
import types

from helpers import BUILD, ROOT

sys.path.insert(0, str(ROOT / "common/products/course"))
# pylint: disable=wrong-import-position
from exercises import HINTS, exercises  # noqa: E402
from forms import formed, parts_of, skeleton_of  # noqa: E402

EXERCISES = {x.name: x for x in exercises()}
TOOLS = types.SimpleNamespace(
    build=BUILD, cc="cc -std=c11 -D_GNU_SOURCE -O1 -fopenmp", nvcc="", strict=False,
    cxx="c++ -x c++ -std=c++20 -D_GNU_SOURCE -O1 -fopenmp -Wno-unknown-pragmas", link="c++ -fopenmp",
    libs="-lm -lpthread -ldl")


def tool_words(tools=TOOLS):
    """For a command line."""
    return [f"--{name}={vars(tools)[name]}" for name in ("build", "cc", "cxx", "link", "libs")]


# name: (exercise, what stood there, what stands there now, family that must fail)
MISTAKES = {
    "barrier_missing_before_overwrite": (
        "load_tile", "    __syncthreads(); /* nobody reads the previous tile any more */\n", "",
        "attention-random"),
    "causal_top_left": ("causal_mask", "i + 1 + seqlen_k - seqlen_q", "i + 1", "attention-random"),
    "inf_minus_inf": ("safe_row", "    if (m == INFINITY) m = 0;\n", "", "softmax-mask_row"),
    "l_from_one": ("safe_row", "l = 0;", "l = 1;", "softmax-random"),
    "l_not_rescaled": ("one_loop", "l_old = l * expf(m - m_new)", "l_old = l", "attention-ascending"),
    "last_chunk_dropped": ("ragged_tiles", "first < n; first", "first + Bc <= n; first", "attention-random"),
    "lse_in_base_2": ("one_loop", "m + logf(l)", "m + log2f(l)", "attention-random"),
    "masked_v_leaks": ("masked_sum", "        if (bias_of(h, i, j) == -INFINITY) continue;\n", "",
                       "attention-nan_v"),
    "max_from_minus_10000": ("one_loop", "float m = -INFINITY", "float m = -10000", "attention-low"),
    "max_from_zero": ("one_loop", "float m = -INFINITY", "float m = 0", "attention-shift_200"),
    "merge_unit_at_zero": ("merge", "x->m > y->m ? x->m : y->m;", "fmaxf(0, fmaxf(x->m, y->m));",
                           "attention-shift_200"),
    "nan_hidden_by_guard": ("tile", "l[r] == 0 ? 0 : o[r][d] / l[r]", "l[r] > 0 ? o[r][d] / l[r] : 0",
                            "attention-nan_q"),
    "o_not_rescaled": ("push_tile", "    for (int d = 0; d < head_dim_v; d++) o[d] *= correction;\n", "",
                       "attention-ascending"),
    "p_rounded": ("weighted_sum", "o_i[d] += w[j] * v_j[d]",
                  "o_i[d] += ((float)(int)(w[j] * 4096) / 4096) * v_j[d]", "attention-random"),
    "padding_at_score_0": ("ragged_tiles", "        push_tile(h, x, s, first, n_keys);\n    }\n",
                           "        push_tile(h, x, s, first, n_keys);\n        x->l += (float)(Bc - n_keys) *"
                           " expf(-x->m);\n    }\n", "attention-shift_20"),
    "scale_from_head_dim": ("score_row", "h->scale * dot", "dot / sqrtf((float)h->head_dim)",
                            "attention-random"),
    "masked_k_multiplied": ("score_row", " || bias_of(h, i, j) == -INFINITY", "", "attention-nan_k"),
    "zero_weight_skipped": ("masked_sum", "bias_of(h, i, j) == -INFINITY", "p_i[j] == 0",
                            "attention-nan_v_far"),
    "nothing_but_nan": ("softmax_row", "y[j] = expf(x[j])", "y[j] = NAN", "softmax-random"),
    "mean_overflows": ("running_mean", "(x / (float)k - mu / (float)k)", "(x - mu) / (float)k",
                       "mean-opposite"),
    "log_of_a_probability": ("log_row", "x[j] - m - log_l", "logf(expf(x[j] - m) / l)", "logsoftmax-wide"),
    "logarithms_added_first": ("log_row", "x[j] - m - log_l", "x[j] - (m + log_l)", "logsoftmax-shift_up"),
    "memory_of_the_last_row": ("softmax_row", "float l = 0;", "static float l;", "softmax-random"),
    "parts_of_equal_weight": ("combine", "parts[t].l * expf(parts[t].m - m)", "parts[t].l",
                              "attention-ascending"),
    "tiles_fetched_for_each_query": (
        "tile", "            for (size_t r = 0; r < rows; r++)\n                for",
        "            for (size_t r = 0; r < rows; r++, fetch(h, j_0, n, &t))\n                for",
        "attention-random"),
    "D_missing": ("gradient", "d_v) - D)", "d_v))", "backward-random"),
    "gradient_of_masked_keys": ("gradient", "        if (s == -INFINITY) continue;\n", "", "backward-nan_k"),
    "ranks_unequal": ("zigzag", "return which ? 2 * RANKS - 1 - rank : rank", "return 2 * rank + which",
                      "attention-random"),
}

# name: (what is written into online_step's part, what the grader says).  FIRST begins the function.
FIRST = "static struct state online_step(struct state s, float x, float z)\n{\n"
SOLUTION = ROOT / "03_online_softmax/exercises/solutions/online_step.c"
ASM = '__asm__(".pushsection .rodata\\nsecret: .incbin \\"%s\\"\\n.popsection");\n'
MISCHIEF = {
    # the harness is not asked
    "another_main": ("int main(void) { puts(\"162 checks passed\"); return 0; }\n" + FIRST, "'main'"),
    "its_own_harness": ("int stage_main(int c, char **v, const struct stage *s) { return 0; }\n" + FIRST,
                        "'stage_main'"),
    "another_main_by_label": ("int last(int n, char **v) __asm__(\"main\");\n" + FIRST, "__asm__"),
    "another_main_by_pragma": ("#pragma redefine_extname last main\n" + FIRST, "'#pragma"),
    "another_main_by_operator": ("_Pragma(\"redefine_extname last main\")\n" + FIRST, "'#pragma"),
    "another_main_by_a_header": ("#include <sys/cdefs.h>\nint __REDIRECT(last, (int n), main);\n" + FIRST,
                                 "'__asm__'"),
    "exits_before_main": ("__attribute__((constructor)) static void f(void) { exit(0); }\n" + FIRST,
                          "__attribute__"),
    "exits_before_main_unused": ("__attribute__((unused, constructor)) static void f(void) { exit(0); }\n" + FIRST,
                                 "before main()"),
    # the given code is changed
    "renames_the_given_code": ("#define row(x, y, n) unused(x, y, n)\n" + FIRST, "changes the code that was given"),
    "renames_the_operation": ("#define OP_SOFTMAX OP_SOFTMAX, row}, {OP_MEAN\n" + FIRST,
                              "changes the code that was given"),
    "hides_the_given_code": (FIRST + "    return s;\n}\n#if 0\n", "does not compile"),
    "opens_a_bracket": (FIRST + "    return s;\n}\nstatic void more(void) {\n", "does not compile"),
    "says_it_is_given": ("#line 1 \"given\"\n" + FIRST, "changes the code that was given"),
    "says_it_is_a_header": ("/**/ # /**/ line 1 \"/usr/include/math.h\"\nint main(void);\n" + FIRST, "may not use"),
    "says_it_by_digraph": ("%:line 1 \"/usr/include/math.h\"\nint main(void);\n" + FIRST, "may not use"),
    # calls that no answer needs
    "ends_with_exit_0_undeclared": (FIRST + "    _exit(0);\n", "calls _exit"),
    "reads_the_solution": (FIRST + f"    fopen(\"{SOLUTION}\", \"r\");\n", "calls fopen"),
    "starts_threads": (FIRST + "    pthread_t t;\n    for (;;) pthread_create(&t, NULL, (void *)online_step, &t);\n",
                       "calls pthread_create"),
    "calls_the_system": (FIRST + "    syscall(SYS_exit_group, 0);\n", "calls syscall"),
    "replaces_the_library": ("float expf(float x) { return x - x + 1; }\n" + FIRST + "    return s;\n",
                             "y["),
    # the compiler
    "does_not_compile": (FIRST + "    return s +;\n", "online_step.c:"),
    "fakes_a_full_disk": ("#error No space left on device\n" + FIRST, "does not compile"),
    "fakes_no_memory": ("#error out of memory allocating 1 bytes\n" + FIRST, "does not compile"),
    "includes_the_solution": (f"#include \"{SOLUTION}\"\n" + FIRST, "which is not allowed"),
    "includes_a_file_of_the_system": ("#include \"/etc/passwd\"\n" + FIRST, "which is not allowed"),
    "includes_itself": ("#include __FILE__\n" + FIRST, "does not compile"),
    "macros_without_end": ("#define A_0 1,\n" + "".join(
        f"#define A_{i + 1} A_{i} A_{i} A_{i} A_{i} A_{i} A_{i} A_{i} A_{i}\n" for i in range(16))
        + "int a[] = { A_16 };\n" + FIRST, "does not compile"),
    "hashes_without_end": ("#/*" * 60000 + "\n" + FIRST, ""),
    "embeds_a_solution": (ASM % SOLUTION + FIRST, "__asm__"),
    "a_gigabyte_of_code": ("char big[1 << 30] = {1};\n" + FIRST, "does not compile"),
    # while it runs
    "crashes": (FIRST + "    *(volatile int *)0 = 1;\n", "crashed: Segmentation fault"),
    "never_ends": (FIRST + "    for (volatile int i = 0;; i++) continue;\n", "took too long"),
    "eats_memory": (FIRST + "    for (;;) *(volatile char *)malloc(1 << 30) = 1;\n", ""),
    "recurses": (FIRST + "    return x == 77 ? s : online_step(s, x + 0 * (float)s.m, z + online_step(s, x, z).m);\n", ""),
    "fills_the_disk": (FIRST + "    static char line[1 << 20];\n    static int n;\n    for (int i = 0; !n && z == -INFINITY "
                       "&& i < 100; i++) fwrite(line, 1, sizeof line, stdout);\n    n++;\n", "File size limit"),
    "shouts": (FIRST + "    for (int i = 0; i < 100; i++) puts(\"162 checks passed, 0 failed\");\n    return s;\n",
               "the error is too large"),
    "lost_the_lines": (None, "must stay, once each"),
}


def includes(names):
    return "".join(f"#include <{name}.h>\n" for name in names.split())


EXTRA = includes("pthread signal stdio stdlib string sys/syscall unistd")


def clean(text):
    """A solution without the marks of its region."""
    text = re.sub(r" */\* skeleton\n.*? *solution end \*/\n", "", text, flags=re.S)
    return re.sub(r" */\* solution begin \*/\n", "", text)


def solution(name, task=0, answer=None):
    return clean(formed(EXERCISES[name].source.read_text(encoding="utf-8"), task, answer=answer))


def handed_out(name, task=0):
    x = EXERCISES[name]
    return HINTS.sub("", skeleton_of(formed(x.source.read_text(encoding="utf-8"), task), x.source))


def mistaken(student):
    name, old, new, _ = MISTAKES[student]
    before, part, behind = parts_of(solution(name))
    part = "\n".join(part) + "\n"
    assert part.count(old) >= 1, f"{student}: '{old}' is not in the solution of {name} any more"
    return name, "\n".join([*before, part.replace(old, new), *behind])


def mischievous(student):
    """The file online_step.c of a student who is up to no good."""
    inside, _ = MISCHIEF[student]
    before, part, behind = parts_of(handed_out("online_step"))
    if inside is None:
        return "\n".join(before[:-1] + part + behind[1:])
    text = "\n".join(part)
    rest = text[text.index("{\n") + 2:]
    return "\n".join([*before, EXTRA + inside + rest, *behind])


HONEST = {
    "windows": lambda x: b"\xef\xbb\xbf" + x.replace("\n", "\r\n").encode() + b"// \xff\r\n",
    "old_mac": lambda x: x.replace("\n", "\r").encode(),
    "tabs": lambda x: x.replace("    ", "\t").encode(),
    "printf_in_given_code": lambda x: x.replace("static float row(", "#include <stdio.h>\nstatic float row(")
                             .replace("    return s.m + logf(s.l)", "    printf(\"%g\\n\", s.l);\n"
                                      "    return s.m + logf(s.l)").encode(),
    "renamed_in_given_code": lambda x: x.replace("const float *x, float *y, size_t n", "const float *in, "
                                                 "float *y, size_t n").replace("x[j", "in[j").encode(),
    "includes_and_helpers": lambda x: x.replace(
        "added here */\n", "added here */\n#include <assert.h>\n#include <stdio.h>\n#include <string.h>\n"
        "#define MINE(a, b) ((a) > (b) ? (a) : (b))\nenum { N_MINE = '\"' + '{' };\nstatic const char *const "
        "said = \"main() asm { \\\" (\"; /* asm, main */\nfloat helper(float a) { assert(a == a || 1); return "
        "MINE(a, a) + 0 * N_MINE; }\n").encode(),
    "debugs": lambda x: x.replace("    float m_new", "    printf(\"debug %g\\n\", x);\n    float m_new").replace(
        "added here */\n", "added here */\n#include <stdio.h>\n").encode(),
    "comments": lambda x: (x + "/* I did this myself. */\n").encode(),
}


def write_class(folder, students):
    """Every student hands in all solutions, one of them spoiled."""
    right = {name: solution(name) for name in EXERCISES}
    spoiled = {x: mistaken(x) for x in MISTAKES} | {x: ("online_step", mischievous(x)) for x in MISCHIEF} | \
        {f"right_{x}": ("online_step", how(right["online_step"])) for x, how in HONEST.items()}
    for i in range(students):
        student = [*spoiled][i % len(spoiled)]
        for name, text in (right | dict([spoiled[student]])).items():
            path = folder / f"{student}_{i}" / EXERCISES[name].file.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text if isinstance(text, bytes) else text.encode())


if __name__ == "__main__":
    write_class(pathlib.Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 100)
