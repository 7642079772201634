"""gpu_project_test.py: projects in CUDA, as far as a machine without a GPU can try them.

    gpu_project_test.py [--build build] [--cuda-build build/cuda]

Right and wrong programs are judged with their kernels executed on the CPU, in the strict jail and
in that of a GPU; without a GPU no project in CUDA gets marks; the targets name every GPU once.
With nvcc and its objects (--cuda-build) hand-ins are also compiled for a GPU, in the compilers'
jail.  Exit status: 0 as it should be; 1 not, with what is wrong."""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import types

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "common" / "grader"))
import projects  # noqa: E402

GPUS = {"NVIDIA H200": ((40, 60), (30, 60)), "NVIDIA H100 80GB HBM3": ((40, 60), (30, 60)),
        "NVIDIA A100-SXM4-80GB": ((40, 60), (25, 45)), "Tesla T4": ((40, 55), (20, 40)),
        "NVIDIA RTX 4000 Ada Generation": ((40, 55), (20, 40)),
        "NVIDIA GeForce RTX 4090": ((40, 55), (20, 40)), "NVIDIA L40S": ((40, 55), (20, 40))}
# name of a project: (what is changed, which family of cases then fails)
WRONG_PROGRAMS = {
    "gpu_softmax": [("if (x_i[j] == -INFINITY) continue;", "", "mask_row"),
                    ("if (i >= rows) return;", "if (i + 1 >= rows) return;", "random")],
    "gpu_attention": [("correction = expf(m - m_new)", "correction = 1", "ascending"),
                      ("p.heads_q / p.heads_kv", "1", "random")],
}
WRONG = []


def expect(true, text):
    if not true:
        WRONG.append(text)
        print(text, flush=True)


def options(build, **more):
    return types.SimpleNamespace(
        build=build, cc="cc -std=c11 -D_GNU_SOURCE -O1 -fopenmp",
        cxx="c++ -x c++ -std=c++20 -D_GNU_SOURCE -O1 -fopenmp", link="c++ -fopenmp", **more)


def each_gpu_has_its_targets():
    for gpu, wanted in GPUS.items():
        got = tuple(projects.targets(x, gpu) for x in ("gpu_softmax", "gpu_attention"))
        expect(got == wanted, f"targets of {gpu}: {got}, not {wanted}")


def verdicts(grader, project):
    """As handed out it is right, in both jails; each wrong program is caught by its family."""
    start = project.file.read_text(encoding="utf-8")
    texts = [(start, None)]
    for old, new, family in WRONG_PROGRAMS[project.name]:
        expect(start.count(old) >= 1, f"{project.name} has no '{old}'")
        texts.append((start.replace(old, new), family))
    for text, family in texts:
        folder = pathlib.Path(tempfile.mkdtemp(dir=grader.place))
        why, log = grader.build_worker(project, text.encode(), folder)
        expect(not why, f"{project.name}: {why}: {log}")
        for jail in ([], ["--gpu-jail"]):
            verdict, why = projects.judged(grader.build, project, str(folder / "worker"), 7, 8,
                                           "--executed", *jail)
            failed = [x.family for x in verdict.failed] if verdict else [why]
            expect(bool(failed) == bool(family) and
                   (not family or any(x.endswith("-" + family) for x in failed)),
                   f"{project.name} {jail}, {family}: {failed}")
        verdict, _ = projects.timed(grader.build, project, str(folder / "worker"), 7, 8)
        expect(not verdict.timed, f"{project.name}: timed without a GPU")
        said, marks = projects.words(project, verdict, 0)
        expect(marks == 0 and ("no GPU" in said or family), f"{project.name}: {marks}: {said}")


def no_marks_without_gpu(place, build):
    (place / "class/one").mkdir(parents=True)
    shutil.copy2(projects.projects(["gpu_softmax"])[0].file, place / "class/one")
    done = subprocess.run(
        [sys.executable, "-B", "common/grader/projects.py", "grade", "--submissions", place / "class",
         "--out", place / "marks", "--build", build, "--ex", "gpu_softmax"], cwd=ROOT, text=True,
        capture_output=True, check=False)
    expect(done.returncode == 3 and "without a GPU" in done.stderr and "is not graded here" in done.stdout,
           f"graded without a GPU: {done.returncode} {done.stdout}{done.stderr}")
    expect(not (place / "marks/projects.json").exists(), "marks were written")


def compiles_for_gpu(place, build, cuda_build):
    """In the compilers' jail: what is right compiles; a file of this machine is not read."""
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    home = pathlib.Path(nvcc).resolve().parents[1]
    if not pathlib.Path(nvcc).exists() or not (cuda_build / "obj/common/grader/worker_gpu.cuda.o").exists():
        print("skipped: nothing compiled for a GPU: no nvcc, or not built")
        return
    objects = place / "build"
    shutil.copytree(ROOT / build / "obj/common", objects / "obj/common", symlinks=True)
    shutil.copy2(cuda_build / "obj/common/grader/worker_gpu.cuda.o", objects / "obj/common/grader")
    shutil.copy2(ROOT / build / "judge", objects)
    grader = projects.ProjectGrader(options(
        str(objects), nvcc=f"{nvcc} -std=c++20 -O3 -gencode arch=compute_80,code=sm_80",
        gpu_link=f"-L{home}/lib64 -L{home}/targets/x86_64-linux/lib -lcudart_static -lrt -ldl"), [])
    project = projects.projects(["gpu_softmax"])[0]
    start = project.file.read_text(encoding="utf-8")
    secret = place / "secret.h"
    secret.write_text("int secret;\n")
    for text, words in ((start, ""), (start + f'#include "{secret}"\n', "Permission denied")):
        folder = pathlib.Path(tempfile.mkdtemp(dir=grader.place))
        (folder / project.file.name).write_text(text, encoding="utf-8")
        why, log = grader.build_for_gpu(project, folder)
        expect(bool(re.search(words, why)) if words else not why, f"for a GPU: '{why}' {log}")
        expect((folder / "gpu_worker").exists() == (not words), f"a worker: {words}")
    shutil.rmtree(grader.place)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build")
    parser.add_argument("--cuda-build", type=pathlib.Path, default=ROOT / "build/cuda")
    chosen = parser.parse_args()
    place = pathlib.Path(tempfile.mkdtemp(prefix="gpu.")).resolve()
    grader = projects.ProjectGrader(options(chosen.build), [])
    try:
        each_gpu_has_its_targets()
        for project in projects.projects(list(WRONG_PROGRAMS)):
            verdicts(grader, project)
        no_marks_without_gpu(place, chosen.build)
        compiles_for_gpu(place, chosen.build, chosen.cuda_build)
    finally:
        shutil.rmtree(place, ignore_errors=True)
        shutil.rmtree(grader.place, ignore_errors=True)
    return 1 if WRONG else 0


if __name__ == "__main__":
    sys.exit(main())
