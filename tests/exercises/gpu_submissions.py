"""gpu_submissions.py: programs that students could hand in for the two projects in CUDA: honest ones,
slow and fast, and the known ways of looking fast.

An attack is the project as it was handed out with code of its own in front, and at the start of
the function that is timed.  It behaves on the small cases and cheats where the clock runs."""
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
NOT_WRITTEN = "out of range, or not written|clock had stopped"
SLOW = "timed"  # it does the work, and gets what the program as handed out gets: no points
GIVEN = ("harness.h", "gpu/cuda_check.h", "problem/half.h")  # what a submission may include
SOFTMAX = ROOT / "03_online_softmax/exercises/projects/gpu_softmax.cu"
ATTENTION = ROOT / "05_flash_cuda/exercises/projects/gpu_attention.cu"
SYSTEM = "".join(f"#include <{x}.h>\n" for x in (
    "fcntl", "pthread", "signal", "stdlib", "sys/mman", "sys/prctl", "sys/socket", "sys/syscall", "time",
    "unistd"))
LATER = """static struct problem late_p; static struct arrays late_a;
static void slow(const struct problem *p, const struct arrays *a);
static void *later(void *x) { usleep(20000); slow(&late_p, &late_a); return x; }
static void start_later(const struct problem *p, const struct arrays *a)
{
    pthread_t t;
    late_p = *p, late_a = *a;
    pthread_create(&t, NULL, later, NULL);
    pthread_detach(t);
}
"""
KEPT = "static char *kept; static size_t n_kept;\n"
KEEP = """slow(p, a); cudaDeviceSynchronize();
        if (!kept) cudaMalloc((void **)&kept, n), n_kept = n;
        cudaMemcpy(kept, y, n, cudaMemcpyDeviceToDevice); return;"""
# All but 128 MiB of the GPU's memory, so that the program itself still runs.
TAKE_GPU = """static void take_gpu_memory(void)
{
    static int once;
    void *spare, *block;
    if (once++ || cudaMalloc(&spare, (size_t)1 << 27)) return;
    for (size_t size = (size_t)1 << 30; size >= (size_t)1 << 26; size /= 2)
        while (cudaMalloc(&block, size) == cudaSuccess) continue;
    cudaFree(spare);
    cudaGetLastError();
}
"""
HALF = "static void half(const struct problem *p, const struct arrays *a, size_t from, size_t rows);\n"
# What a program says to the judge when it takes over the conversation.
TALK = """#include "protocol"
static __global__ void spin_kernel(void)
{
    for (long long begin = clock64(); clock64() - begin < 20000000000;) continue;
}
static void take_over(void)
{
    struct request q; struct reply r = {}; r.ok = 1;
    cudaStream_t stream; cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    spin_kernel<<<264, 1024, 0, stream>>>();
    cudaStreamQuery(stream);
    do if (write(SOCKET_FD, &r, sizeof r) != sizeof r) _exit(1);
    while (read(SOCKET_FD, &q, sizeof q) == sizeof q);
}
"""
# name: (in front of the function, at its start when the work is large, what the judge says)
SOFTMAX_ATTACKS = {
    "patched timer": (
        "extern \"C\" int clock_gettime(clockid_t c, struct timespec *t) noexcept\n"
        "{ (void)c; t->tv_sec = 1; t->tv_nsec = 1; return 0; }\n", "", SLOW),
    "code before main()": (
        "__attribute__((constructor)) static void first(void)\n"
        "{ prctl(PR_SET_NAME, \"\\033[2J\\xff\"); if (fork() == 0) for (;;) continue; }\n", "", SLOW),
    "waiting replaced": (
        "extern \"C\" cudaError_t cudaDeviceSynchronize(void) { return cudaSuccess; }\n", "",
        "does not link|clock had stopped|" + NOT_WRITTEN),
    "last time's result": (
        KEPT, "if (kept && n == n_kept) { cudaMemcpy(y, kept, n, cudaMemcpyDeviceToDevice); return; }\n"
        "        " + KEEP, "a wrong row"),
    "cached by the first number": (
        KEPT + "static float first;\n",
        "float now; cudaMemcpy(&now, x, 4, cudaMemcpyDeviceToHost);\n"
        "        if (kept && now == first) { cudaMemcpy(y, kept, n, cudaMemcpyDeviceToDevice); return; }\n"
        "        first = now; " + KEEP, SLOW),
    "later, by a thread": (LATER, "start_later(p, a); return;", NOT_WRITTEN),
    "on another stream": (
        "static cudaStream_t other;\n",
        "if (!other) cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);\n"
        "        struct arrays b = *a; b.stream = other; slow(p, &b); return;", SLOW),
    "answers, then works": (
        "#include \"protocol\"\n",
        "struct reply r = {}; r.ok = 1;\n"
        "        if (write(SOCKET_FD, &r, sizeof r) == sizeof r) slow(p, a); return;", NOT_WRITTEN),
    "a kernel left running": (
        TALK, "slow(p, a); cudaDeviceSynchronize(); take_over(); return;", "still runs on the GPU"),
    "a thread left running": (
        "static void *spin(void *x) { for (volatile int i = 0;; i++) continue; return x; }\n",
        "static int once; pthread_t t; if (!once++) pthread_create(&t, NULL, spin, NULL);", SLOW),
    "half now, half next time": (
        HALF, "static size_t turn; half(p, a, turn++ % 2 * (p->rows / 2), p->rows / 2); return;",
        NOT_WRITTEN),
    "the mean": (
        "static __global__ void mean_kernel(float *y, size_t n, float mean)\n{\n"
        "    size_t i = blockIdx.x * (size_t)1024 + threadIdx.x;\n    if (i < n) y[i] = mean;\n}\n",
        "mean_kernel<<<(unsigned)(n / 4096 + 1), 1024>>>(y, n / 4, 1.0f / (float)p->cols); return;",
        "a wrong row"),
    "easy inputs": (
        "", "cudaMemset((void *)x, 0, n); slow(p, a); return;", "an input was overwritten"),
    "beside the output": (
        "", "slow(p, a); cudaMemset((char *)y + n, 0, 4); return;", "something beside an output"),
    "reads the judge": (
        "", "char path[40]; snprintf(path, 40, \"/proc/%d/mem\", getppid());\n"
        "        int f = open(path, O_RDONLY); if (f >= 0) slow(p, a); return;", NOT_WRITTEN),
    "answers in a file": (  # for its next run, or for a friend
        "", "static const char *const in[] = {\"/dev/shm\", \"/tmp\", \"/var/tmp\", \"\", "
        "\"/proc/self/cwd\"};\n        for (int i = 0; i < 5; i++) {\n"
        "            char path[40]; snprintf(path, 40, \"%s/answers\", in[i]);\n"
        "            if (open(path, O_RDWR | O_CREAT, 0600) < 0) continue;\n"
        "            unlink(path); return;\n        }", SLOW),
    "takes memory": (
        "", "static void *volatile block;\n"
        "        for (int i = 0; i < 64; i++) if (!(block = malloc((size_t)1 << 30))) abort();", "Aborted"),
    "takes memory that can be shared": (  # the same megabyte, 5000 times
        "", "int file = memfd_create(\"x\", 0); syscall(SYS_ftruncate, file, 1 << 20);\n"
        "        for (int i = 0; i < 5000; i++)\n"
        "            if (mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, 0)\n"
        "                == MAP_FAILED) return;", "too much memory"),
    "takes the GPU's memory": (TAKE_GPU, "take_gpu_memory();", SLOW),  # the judge's and the next student's
    "talks to others": (
        "", "int s = socket(AF_INET, SOCK_STREAM, 0), u = socket(AF_UNIX, SOCK_DGRAM, 0);\n"
        "        if (s >= 0 || u >= 0 || fork() >= 0) return;", SLOW),
}
AT_ONCE = ("takes the GPU's memory",)  # in small cases too


def softmax_attack(name):
    """The project gpu_softmax, spoiled."""
    before, start, _ = SOFTMAX_ATTACKS[name]
    source = SOFTMAX.read_text(encoding="utf-8")
    old = "static void softmax(const struct problem *p, const struct arrays *a)\n"
    head, body = source.split(old)
    slow = body[:body.index("\n}\n") + 3]
    half = ("static void half(const struct problem *p, const struct arrays *a, size_t from, size_t rows)\n"
            "{\n    struct problem q = *p; struct arrays b = *a;\n    q.rows = rows;\n"
            "    b.x = (const float *)a->x + from * p->cols, b.y = (float *)a->y + from * p->cols;\n"
            "    slow(&q, &b);\n}\n") if before == HALF else ""
    names = ("    const float *x = (const float *)a->x; float *y = (float *)a->y;\n"
             "    size_t n = p->rows * p->cols * sizeof(float);\n    (void)x, (void)y, (void)n;\n")
    where = "p->rows" if name in AT_ONCE else "p->rows * p->cols > 1000000"
    cheat = f"    if ({where}) {{\n        {start}\n    }}\n" if start else ""
    protocol = (ROOT / "common/grader/protocol.h").read_text(encoding="utf-8").replace(
        '#include "harness.h"\n', "")
    before = before.replace('#include "protocol"\n', protocol)
    return (SYSTEM + head + "static void slow(const struct problem *p, const struct arrays *a)\n" + slow
            + before + half + "\n" + old + body.replace("{\n", "{\n" + names + cheat, 1))


def one_file(path, folders, seen):
    """The text of a file with its own headers in it, each once."""
    def inlined(line):
        if line[1] in GIVEN:
            return line[0]
        header = next(x / line[1] for x in (path.parent, *folders) if (x / line[1]).exists())
        if header in seen:
            return ""
        seen.add(header)
        return one_file(header, folders, seen)
    return re.sub(r'^#include "(.*?)"\n', inlined, path.read_text(encoding="utf-8"), flags=re.M)


def fast_softmax():
    """Stage 3's row in one cluster: one read and one write.  For a GPU only."""
    stage = ROOT / "03_online_softmax"
    text = one_file(stage / "gpu/one_pass/cluster.cu", (stage, ROOT / "common"), set())
    return text.replace("(gpu_cluster)", "(project)")


def fast_attention():
    """Stage 5's rung 3, the first on tensor cores, for one head dimension.  For a GPU only."""
    stage = ROOT / "05_flash_cuda"
    text = one_file(stage / "portable/03_tensor_cores.cu", (stage, ROOT / "common"), set())
    text = re.sub(r"    else if \(d <= 128\) launch<T, 128>.*\n    else launch<T, 256>.*\n",
                  "    else launch<T, 128>(p, a);\n", text)
    return text.replace("    else attention_in<BF16>(p, a);\n", "").replace("(tensor_cores)", "(project)")


def attention_without_keys():
    """Every other key left out, where the clock runs."""
    text = ATTENTION.read_text(encoding="utf-8")
    return text.replace("j++) {", "j += keys.end > 4096 ? 2 : 1) {")
