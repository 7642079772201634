"""students.py: a class to try the grader on: right answers, known mistakes, and mischief.

MISTAKES are planted bugs in the form that they take in an exercise; the family named beside each must see
it.  HOSTILE files are put in the place of online_step.c; none earns anything."""
import sys
import types

from helpers import BUILD, ROOT

sys.path.insert(0, str(ROOT / "common/products/course"))
# pylint: disable=wrong-import-position
from source import exercises  # noqa: E402

EXERCISES = {x.name: x for x in exercises()}
TOOLS = types.SimpleNamespace(
    build=BUILD, cc="cc -std=c11 -D_GNU_SOURCE -O3 -march=native -fno-math-errno -fno-trapping-math -ffp-contract=off", strict=False,
    cxx="c++ -x c++ -std=c++20 -D_GNU_SOURCE -O1 -Wno-unknown-pragmas", nvcc="")


def tool_words(tools=TOOLS):
    """For a command line."""
    return [f"--{name}={vars(tools)[name]}" for name in ("build", "cc", "cxx", "nvcc")]


# name: (exercise, what stood there, what stands there now, family that must fail)
MISTAKES = {
    "broadcast_by_loads": ("puzzles", "mine - first[0]", "mine - x[i / 64 * 64]", "broadcast"),
    "tree_without_barrier": ("puzzles", "        __syncthreads();\n        if (t < half)", "        if (t < half)", "block_sum"),
    "every_lane_adds": ("puzzles", "if (threadIdx.x == 0) atomicAdd(&z[0], sum)", "atomicAdd(&z[0], sum / 32)", "grid_sum"),
    "transposed_stores": ("puzzles", "z[(c_0 + e / 32) * n + r_0 + e % 32] = s[e % 32 * 32 + e / 32]",
                          "z[(c_0 + e / 32) * n + r_0 + e % 32] = x[(r_0 + e % 32) * m + c_0 + e / 32]", "transpose"),
    "tile_not_padded": ("puzzles", "* 33", "* 32", "transpose_without_conflicts"),
    "product_without_tiles": ("puzzles", "sum += a[i * 16 + k] * b", "sum += (r < n && k_0 + k < n ? x[r * n + k_0 + k] : 0) * b",
                              "matrix_product"),
    "one_buffer": ("puzzles", "s[r % 2 * 64 + 7 * t % 64]", "x[r * 64 + 7 * t % 64]", "two_buffers"),
    "reports_the_last_key": ("a1_naive", "*l == INFINITY && r.what == FINE", "*l == INFINITY", "sum_breaks"),
    "looks_at_terms_only": ("a1_naive", "*l == INFINITY && r.what", "y[j] == INFINITY && r.what", "sum_breaks"),
    "log_of_softmax": ("a2_safe", "(x[j] - m) - log_l", "logf(expf(x[j] - m) / l)", "log_wide"),
    "masked_key_multiplied": ("a2_safe", "s[j] != -INFINITY) s[j] +=", "1) s[j] +=", "nan_k"),
    "state_divided_at_a_report": ("a3_online", "x[i].l == 0 ? 0 : x[i].o[d] / x[i].l;",
                                  "x[i].l == 0 ? 0 : (x[i].o[d] /= x[i].l);", "ascending"),
    "nan_compares_false": ("a3_online", "if (s == -INFINITY) return;", "if (!(s > -INFINITY)) return;", "nan_q"),
    "empty_part_spoils": ("a4_monoid", "    if (y->l == 0) return;\n", "", "mask_row"),
    "one_thread_works": ("a4_tiled", "pthread_create(&thread[t], NULL, do_share, &share[t])",
                         "{ do_share(&share[t]); pthread_create(&thread[t], NULL, idle, NULL); }", "shared_rows"),
    "slow_sums": ("a4_tiled", "s[j] = fmaf(q_i[d], k_t[d][j], s[j]);",
                  "{ volatile float x = s[j]; for (int i = 0; i < 12; i++) x = s[j]; s[j] = x + q_i[d] * k_t[d][j]; }", "speed_12"),
    "keys_without_merge": ("a4_tiled", "for (size_t t = 1; t < copies; t++)", "for (size_t t = copies; t < copies; t++)", "right_keys"),
    "bank_conflicts": ("a5_fused", "(a.d + 1)", "a.d", "bank_conflicts"),
    "lanes_load_rows": ("a5_fused", "k[e / a.d * (a.d + 1) + e % a.d] = a.k[j_0 * a.d + e];",
                        "{ int r = e % n, c = e / n; k[r * (a.d + 1) + c] = a.k[(j_0 + r) * a.d + c]; }", "coalesced"),
    "each_warp_loads": ("a5_fused", "for (int e = threadIdx.x; e < n * a.d; e += WARPS * 32)",
                        "for (int e = lane; e < n * a.d; e += 32)", "loaded_once"),
    "loads_behind_the_count": ("a5_fused", "= a.k[j_0 * a.d + e]", "= a.k.p[j_0 * a.d + e]", "loaded_once"),
    "no_second_barrier": ("a5_fused", "        __syncthreads(); /* the tile is complete */\n", "", "random"),
    "splits_overwrite": ("a5_fused", "t < a.splits; t++) {", "t < 1; t++) {", "splits"),
    "barrier_missing_before_overwrite": (
        "load_tile", "    __syncthreads(); /* nobody reads the previous tile any more */\n", "", "many_tiles"),
    "barrier_missing_after": ("load_tile", "    __syncthreads(); /* the tile is complete */\n", "", "one_tile"),
    "every_thread_loads_all": ("load_tile", "e = threadIdx.x; e < n * head_dim; e += Br", "e = 0; e < n * head_dim; e++",
                               "one_tile"),
    "threads_load_in_pieces": (
        "load_tile", "for (int e = threadIdx.x; e < n * head_dim_v; e += Br)",
        "for (int e = threadIdx.x * n * head_dim_v / Br; e < ((int)threadIdx.x + 1) * n * head_dim_v / Br; e++)", "one_tile"),
    "causal_top_left": ("causal_mask", "i + 1 + seqlen_k - seqlen_q", "i + 1", "more_keys"),
    "maximum_from_zero": ("safe_row", "float m = INFINITY", "float m = 0", "shift_200"),
    "combined_without_guard": ("combine", "        if (parts[t].l == 0) continue;\n        float weight = parts[t].m == m ? parts[t].l : ",
                               "        float weight = ", "mask_row"),
    "inf_minus_inf": ("safe_row", "    if (m == INFINITY) m = 0;\n", "", "mask_row"),
    "l_from_one": ("safe_row", "l = 0;", "l = 1;", "random"),
    "l_not_rescaled": ("one_loop", "l_old = l * expf(m - m_new)", "l_old = l", "ascending"),
    "two_keys_at_once": ("one_loop", "        arrived(o);\n", "        if (d_v % 2) arrived(o);\n", "random"),
    "last_tile_dropped": ("ragged_tiles", "first < n; first", "first + Bc < n; first", "full"),
    "tiles_of_one": ("ragged_tiles", "(n - 1) % Bc + 1 : 0", "1 : 0", "ragged"),
    "lse_in_base_2": ("one_loop", "m + logf(l)", "m + log2f(l)", "random"),
    "masked_v_leaks": ("masked_sum", "        if (bias_of(h, i, j) == -INFINITY) continue;\n", "", "nan_v"),
    "max_from_zero": ("one_loop", "float m = -INFINITY", "float m = 0", "shift_200"),
    "merge_unit_at_zero": ("merge", "x->m > y->m ? x->m : y->m;", "fmaxf(0, fmaxf(x->m, y->m));", "shift_200"),
    "nan_hidden_by_guard": ("tile", "l[r] == 0 ? 0 : o[r][d] / l[r]", "l[r] > 0 ? o[r][d] / l[r] : 0", "nan_q"),
    "o_not_rescaled": ("push_tile", "    for (int d = 0; d < head_dim_v; d++) o[d] *= correction;\n", "", "ascending"),
    "p_rounded": ("weighted_sum", "o_i[d] += w[j] * v_j[d]", "o_i[d] += ((float)(int)(w[j] * 4096) / 4096) * v_j[d]",
                  "random"),
    "scale_from_head_dim": ("score_row", "h->scale * dot", "dot / sqrtf((float)h->head_dim)", "random"),
    "masked_k_multiplied": ("score_row", " || bias_of(h, i, j) == -INFINITY", "", "nan_k"),
    "zero_weight_skipped": ("masked_sum", "bias_of(h, i, j) == -INFINITY", "p_i[j] == 0", "nan_v_far"),
    "nothing_but_nan": ("softmax_row", "y[j] = expf(x[j])", "y[j] = NAN", "random"),
    "mean_overflows": ("running_mean", "(x / (float)k - mu / (float)k)", "(x - mu) / (float)k", "opposite"),
    "mean_of_4096_at_most": ("running_mean", "return mu", "if (k > 4096) k = 4096;\n    return mu", "random"),
    "log_of_a_probability": ("log_row", "log_l - (x[j] - m)", "-logf(expf(x[j] - m) / l)", "wide"),
    "logarithms_added_first": ("log_row", "log_l - (x[j] - m)", "(m + log_l) - x[j]", "shift_up"),
    "memory_of_the_last_row": ("softmax_row", "float l = 0;", "static float l;", "random"),
    "parts_of_equal_weight": ("combine", "parts[t].l * expf(parts[t].m - m)", "parts[t].l", "ascending"),
    "tiles_fetched_for_each_query": (
        "tile", "            for (size_t r = 0; r < rows; r++)\n                for",
        "            for (size_t r = 0; r < rows; r++, fetch(j_0, n, &t))\n                for", "random"),
    "D_missing": ("gradient", "d_v) - D)", "d_v))", "random"),
    "gradient_of_masked_keys": ("gradient", "        if (s == -INFINITY) continue;\n", "", "nan_k"),
    "head_dims_to_128": ("gradient", "d_v = h->head_dim_v;", "d_v = h->head_dim_v < 128 ? h->head_dim_v : 128;", "random"),
    "keys_smoothed_without_lse": ("smooth_keys", "shift[i] += h->scale", "shift[i] += 0", "random"),
    "mean_of_a_query": ("smooth_keys", "(double)h->seqlen_k", "(double)h->seqlen_q", "random"),
    "codes_cut_off": ("quantise_row", "rintf(x[j] / *scale)", "truncf(x[j] / *scale)", "random"),
    "largest_of_positive_numbers": ("quantise_row", "fabsf(x[j])", "x[j]", "negative"),
    "bound_of_a_whole_step": ("quantise_row", "*bound = *scale / 2", "*bound = *scale", "random"),
    "ranks_unequal": ("zigzag", "return which ? 2 * ranks - 1 - rank : rank", "return 2 * rank + which", "few"),
}

# Right, but slow: what the shares of a ceiling must tell apart.
SLOW = {x: MISTAKES[x][:3] for x in ("slow_sums", "bank_conflicts", "lanes_load_rows", "each_warp_loads")} | {
    "one_sum_for_each_key": ("a4_tiled", """    for (size_t d = 0; d < head_dim; d++)
        for (size_t j = 0; j < Bc; j++) s[j] =""", """    for (size_t j = 0; j < Bc; j++)
        for (size_t d = 0; d < head_dim; d++) s[j] =""")}

# What is put in the place of online_step.c: (text, a part of what the grader says).
TOP = "".join(f"#include <{x}.h>\n" for x in "errno fcntl pthread signal stdio stdlib string sys/mman sys/socket sys/stat "
              "sys/syscall time unistd".split()) + '#include "course/exercise.h"\n'
ANSWER = TOP + "void answer(const struct call *c)\n{\n    (void)c;\n    %s\n}\n"
# true where a door is open: then it answers 7, and the test sees a message that has a 7
DOORS = {
    "files": "open(\"/etc/passwd\", O_RDONLY) >= 0", "program": "open(\"/proc/self/exe\", O_RDONLY) >= 0",
    "arguments": "open(\"/proc/self/cmdline\", O_RDONLY) >= 0", "folder": "open(\"/\", O_RDONLY | O_DIRECTORY) >= 0",
    "new_file": "open(\"/tmp/written_by_a_student\", O_CREAT | O_WRONLY, 0600) >= 0", "mkdir": "!mkdirat(-100, \"/tmp/y.npy\", 0700)",
    "fork": "fork() >= 0", "thread": "!pthread_create(&(pthread_t){0}, NULL, (void *)abort, NULL)",
    "internet": "socket(AF_INET, SOCK_STREAM, 0) >= 0", "unix": "socket(AF_UNIX, SOCK_STREAM, 0) >= 0",
    "kill_parent": "!kill(getppid(), 0)", "kill_all": "!kill(-1, 0)", "ptrace": "!syscall(SYS_ptrace, 16, 1, 0, 0)",
    "memfd": "memfd_create(\"x\", 0) >= 0", "shm": "open(\"/dev/shm/x\", O_CREAT | O_RDWR, 0600) >= 0",
    "other_descriptors": "({ int n = 0; for (int i = 3; i < 1024; i++) n += write(i, \"\", 0) == 0; n; })",
    "read_words": "lseek(1, 0, SEEK_SET) == 0", "raw_call_by_offset": "syscall(SYS_openat, -100, \"/etc/hosts\", 0) >= 0",
}
HOSTILE = {
    "a_file_of_the_lesson": ("int softmax_row(void) { return 1; }\n", "answer() is missing"),
    "exits": (ANSWER % "syscall(SYS_exit_group, 0);", "without an answer"),
    "exits_before_main": (ANSWER % "" + "__attribute__((constructor)) static void f(void) { _exit(0); }\n", "without an answer"),
    "another_main": (ANSWER % "" + "int main(void) { puts(\"68 cases passed\"); return 0; }\n", "multiple definition"),
    "crashes": (ANSWER % "*(volatile int *)8 = 1;", "crashed: Segmentation fault"),
    "reads_the_clock": (ANSWER % "struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); c->y[0][0] = (float)t.tv_sec;", "crashed"),
    "never_ends": (ANSWER % "for (volatile int i = 0;; i++) continue;", "took too long"),
    "waits": (ANSWER % "char b; for (;;) read(0, &b, 1);", "took too long"),
    "eats_memory": (ANSWER % "for (;;) memset(malloc(1 << 26), 1, 1 << 26);", ""),
    "recurses": (ANSWER % "answer(c); c->y[0][0] = 1;", "crashed"),
    "fills_the_disk": (ANSWER % "for (;;) puts(\"68 cases passed, 0 failed\");", "File size limit"),
    "answers_early": (ANSWER % "long w[] = {'d', 0, 0, 2, 0}; for (int i = 0; i < 4000; i++) write(0, w, sizeof w);", ""),
    "answers_before_it_is_asked": ("__attribute__((constructor)) static void before(void) { long w[] = {'d', 0, 0, 2, 0}; write(0, w, 40); }\n"
                                   .join([TOP, ANSWER % ""]), "out of turn"),
    "answers_rubbish": (ANSWER % "for (int i = 0; i < 400; i++) write(0, \"PK\\3\\4\\x93NUMPY\", 10);", "out of turn"),
    "asks_for_more": (ANSWER % "float x; ask('k', 0, 0, NULL, 0, &x, 1);", "does not have"),
    "asks_for_the_moon": (ANSWER % "long w[] = {'k', -1, 1, -1}; write(0, w, sizeof w); ask(300, -1, 1, NULL, (size_t)1 << 60, NULL, 0);", ""),
    "asks_without_end": (ANSWER % "for (;;) { long w[4] = {'k'}; write(0, w, 32); }", "does not have"),
    "replaces_the_library": ("float expf(float x) { return x - x + 1; }\n" + ANSWER % "c->y[0][0] = expf(1), c->y[0][1] = 1;", "m["),
    "includes_the_solution": (f"#include \"{ROOT}/03_online_softmax/exercises/solutions/online_step.c\"\n", "does not compile"),
    "embeds_a_file": ("__asm__(\".incbin \\\"/etc/passwd\\\"\");\n" + ANSWER % "", "does not compile"),
    "includes_random_numbers": ("#include \"/dev/urandom\"\n", "does not compile"),
    "a_quote_in_a_number": ("int a = 1'0;\n" + ANSWER % "", "does not compile"),
    "macros_without_end": ("#define A_0 1,\n" + "".join(f"#define A_{i + 1} {f'A_{i} ' * 8}\n" for i in range(16))
                           + "int a[] = { A_16 };\n" + ANSWER % "", "does not compile"),
    "a_gigabyte_of_code": ("char big[1 << 30] = {1};\n" + ANSWER % "", "does not compile"),
    "does_not_compile": (ANSWER % "return s +;", "online_step.c:"),
}


def solution(name):
    return EXERCISES[name].solution()


def handed_out(name):
    return EXERCISES[name].skeleton()


def mistaken(student):
    name, old, new, _ = MISTAKES[student]
    text = solution(name)
    assert old in text, f"{student}: '{old}' is not in the solution of {name} any more"
    return name, text.replace(old, new).replace("static void *do_share", "static void *idle(void *x) { return x; }\nstatic void *do_share")


HONEST = {
    "windows": lambda x: b"\xef\xbb\xbf" + x.replace("\n", "\r\n").encode() + b"// \xff\r\n",
    "old_mac": lambda x: x.replace("\n", "\r").encode(),
    "tabs": lambda x: x.replace("    ", "\t").encode(),
    "prints": lambda x: x.replace("    float m_new", "    printf(\"debug %g\\n\", x);\n    float m_new", 1).replace(
        '#include "course', '#include <stdio.h>\n#include "course').encode(),
}


def write_class(folder, students):
    """Every student hands in all solutions, one of them spoiled; every fifth is hostile.  Returns whose is which."""
    right = {name: solution(name) for name in EXERCISES}
    spoiled = [(x, mistaken(x)) for x in MISTAKES] + [(f"right_{x}", ("online_step", how(right["online_step"])))
                                                     for x, how in HONEST.items()]
    hostile = [(x, ("online_step", text)) for x, (text, _) in HOSTILE.items()]
    found = {}
    for i in range(students):
        student, (which, text) = hostile[i // 5 % len(hostile)] if i % 5 == 0 else spoiled[i % len(spoiled)]
        found[f"{student}_{i}"] = which
        for name, data in (right | {which: text}).items():
            path = folder / f"{student}_{i}" / EXERCISES[name].file.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return found
