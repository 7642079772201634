"""test_cli.py: the command line of the stage programs: list, help, which variant is taken, and bad
use of every kind, which exits 2 in one line that says what would be right."""
import pathlib
import re
import shutil

import numpy as np
import pytest

from helpers import BUILD, STAGES, lines_of, normal, refused, run, save, stage

EVERY = range(1, 6)
QKV = ["run", "--q", "q.npy", "--k", "k.npy", "--v", "v.npy", "--o", "o.npy"]


def save_qkv():
    save("q.npy", normal(4, 3, 8)), save("k.npy", normal(2, 5, 8)), save("v.npy", normal(2, 5, 6))


def contents():
    return {path.name: path.read_bytes() for path in pathlib.Path().iterdir() if path.is_file()}


# --- What is printed. ---

@pytest.mark.parametrize("number", EVERY)
def test_list_is_one_line_a_variant(number):
    result = stage(number, "list")
    assert result.out.startswith("# ") and "\n\n" not in result.out and not result.err
    assert max(map(len, result.out.splitlines())) <= 100, "shorten its .idea"
    variants = [line for line in result.out.splitlines() if not line.startswith("# ")]
    assert variants
    for line in variants:
        assert re.match("[a-z]", line) and re.search("f32|f16|e4m3|int8", line) and "..." not in line
    stage(number, "list", "--csv", "list.csv")
    assert [row["variant"] for row in lines_of("list.csv")] == [line.split()[0] for line in variants]


def test_f32_is_computed_in_16_bits_only_where_nothing_else_was_asked_for():
    save_qkv()
    for options, code, want in [("--dtype f32", 2, "variant tensor_cores does not support f32"),
                                ("", 0, "q.npy: f32 converted to bf16"),
                                ("--dtype bf16", 0, "q.npy: f32 converted to bf16"),
                                ("--dtype f16", 0, "q.npy: f32 converted to f16")]:
        result = stage(5, *QKV, "--device", "cpu", "--variant", "tensor_cores", *options.split(),
                       want=code)
        assert want in result.out + result.err
        assert ("o.npy" in contents()) == (code == 0)


@pytest.mark.parametrize("number", range(1, 5))
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_default_of_stages_1_to_4_executes_no_gpu_kernel_on_the_cpu(number, dtype):
    save_qkv(), save("x.npy", normal(3, 40))
    more = ["--device", "cpu", "--dtype", dtype]
    assert "(cpu, f32)" in stage(number, "run", "--x", "x.npy", "--y", "y.npy", *more).out
    bf16 = "bf16" if number == 4 and dtype == "bf16" else "f32"  # where the processor has it
    assert re.search(rf"\(cpu, (f32|{bf16})\)", stage(number, *QKV, *more).out)


@pytest.mark.parametrize("number", EVERY)
def test_help_and_version_follow_every_verb(number):
    for before in ["", "list", "check", "bench", "trace", "run", "run --q nosuch.npy",
                   "bench --quick", "help"]:
        for option, want in [("--help", "Exit status:"), ("-h", "Exit status:"),
                             ("--version", " 1.")]:
            result = stage(number, *before.split(), option)
            assert want in result.out and STAGES[number - 1] in result.out and not result.err
    for wrong in ["run --helping", "--helping", "list --version=1", "-v"]:
        refused(number, *wrong.split())
    assert not contents()


@pytest.mark.parametrize("number", EVERY)
def test_every_option_of_a_verb_stands_in_its_help(number):
    """What the help shows is taken, and what it does not show is refused."""
    text = stage(number, "help").out
    options = {match[1]: match[0] for match in re.findall(r"\[(--([a-z-]+))", text)}
    parts = re.split(r"\n(?=[a-z]+ +\S)", text)
    for part in parts[1:]:
        verb = part.split()[0]
        for name, option in options.items():
            result = stage(number, verb, option, want=2) if f"[{option}" not in part else None
            if result:
                assert f"{option}: not an option of {verb}" in result.err


def test_csv_is_left_alone_when_its_columns_are_others():
    """Older records stay as they are: another column, another file."""
    words_ = ["bench", "--rows", 3, "--cols", 4, "--variant", "naive", "--csv", "a.csv"]
    stage(1, *words_), stage(1, *words_)
    text = pathlib.Path("a.csv").read_text(encoding="utf-8")
    assert len(text.splitlines()) == 3 and re.search(r",(gcc|clang) \d+\.\d+", text)
    old = text.replace(",flags", "")
    pathlib.Path("a.csv").write_text(old, encoding="utf-8")
    refused(1, *words_, says="its columns are not those of this program")
    assert pathlib.Path("a.csv").read_text(encoding="utf-8") == old


def test_a_processor_without_the_instructions_is_told_in_one_line():
    """A processor of 2008, in emulation: no AVX."""
    if not shutil.which("qemu-x86_64"):
        pytest.skip("no qemu-x86_64")
    if "avx" not in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8"):
        pytest.skip("built for a processor of 2008")
    result = run("qemu-x86_64", "-cpu", "Nehalem", BUILD / STAGES[3], "list", want=2)
    assert re.fullmatch(r"this processor lacks instructions .*\n", result.err)


# --- Bad use. ---

# Arguments -> a word of the line that they must cause.  QKV: attention whose files fit.
MISUSES = r"""
 -> verb                                    dance -> dance
--quick -> --quick                          run -> --x
run --q q.npy -> --k                        run --q q.npy --k k.npy --v v.npy -> --o
run --q q.npy --k k.npy --o o.npy -> --v    run --k k.npy --v v.npy --o o.npy -> --q
run --x x.npy -> --y                        run --y y.npy -> --x
run --x x.npy --y y.npy --q q.npy -> --q    run --x x.npy --y y.npy --causal -> --causal
QKV --log -> --log                          QKV --x x.npy -> --x
QKV --frobnicate -> --frobnicate            QKV stray -> stray
QKV stray\nargument -> stray?argument       check --case no\nsuch -> no?such
bench --csv missing\n/a.csv -> missing?     trace --row 1\n, -> --row
QKV -v -> -v                                QKV -- -> --
QKV --quick -> --quick                      QKV --row 1,2 -> --row
QKV --o o2.npy -> --o                       QKV --causal --causal -> --causal
QKV --causal=1 -> --causal                  QKV --scale 1 --scale 1 -> --scale
QKV --variant nosuch -> nosuch              check --gpus 65 -> --gpus
check --gpus 1 --variant tiled -> -         check --strategy ring -> --strategy
QKV --lse o.npy -> --lse
QKV --lse ./o.npy -> o.npy                  QKV --lse missing/lse.npy -> missing/lse.npy
run --q q.npy --k k.npy --v v.npy --o new.npy --lse ./new.npy -> new.npy
run --x x.npy --y x.npy -> x.npy            QKV --lse directory/../v.npy -> file of --v
QKV --lse directory -> directory            QKV --bias missing.npy -> missing.npy
QKV --bias q.npy -> q.npy                   QKV --bias x.npy -> x.npy
FILES missing k v o -> missing.npy          FILES q directory. v o -> directory
FILES q k text o -> text.npy                FILES q k short o -> short.npy
FILES q k integers o -> integers.npy        FILES q k big o -> big.npy
FILES q k v missing/o -> missing/o.npy      FILES q k v directory. -> directory
FILES q k v v.npy/o -> v.npy/o.npy          FILES q k_dim v o -> k_dim.npy
FILES q k v_keys o -> v_keys.npy            FILES q k v_heads o -> v_heads.npy
FILES q k_heads v_heads o -> k_heads.npy    FILES q k_none v_none o -> k_none.npy
FILES q k4 v o -> k4.npy                    FILES q4 k4 v4 o -> k4.npy
FILES one one one o -> one.npy              FILES scalar scalar scalar o -> scalar.npy
FILES five five five o -> five.npy          FILES no_dim no_dim v o -> no_dim.npy
run --x scalar.npy --y y.npy -> scalar.npy  run --x missing.npy --y y.npy -> missing.npy
check --o o.npy -> --o                      check --variant nosuch -> nosuch
check --case nosuch -> nosuch               list --quick -> --quick
trace --row abc -> abc                      trace --row 1,,2 -> --row
bench --op dance -> dance                   bench --heads-q 3 --heads-kv 2 -> --heads
bench --rows 5 --seqlen-q 6 -> --rows       bench --rows 5 --op attention -> --op
bench --seqlen-q 5 --op softmax -> --op     bench --op mean -> --op
bench --csv missing/a.csv -> missing/a.csv  bench --csv directory -> directory
bench --csv text.npy -> text.npy
bench --rows 1099511627776 --cols 1099511627776 --csv new.csv -> memory
bench --seqlen-q 1099511627776 --csv new.csv -> memory
bench --quick --batch 2147483648 -> --batch: the arrays
bench --quick --heads-q 2147483648 -> --heads-q: the arrays
bench --quick --head-dim 2147483648 -> --head-dim: the arrays
bench --head-dim-v 2147483648 --batch 64 -> --batch, --head-dim-v: the arrays
"""
WRONG_VALUES = {  # None: the value is missing
    "QKV --scale": [None, "nan", "inf", "-inf", "abc", "", "1e99", "1.0x", " 1"],
    "QKV --variant": [None, ""],
    "QKV --dtype": [None, "f64"],
    "QKV --threads": ["0", "-1", "1e3", "99999999999999999999"],
    "QKV --device": ["tpu"],
    "check --gpus": ["0"], "check --seed": ["-1", "x"], "trace --row": [""],
    "bench --rows": ["0", "-5"], "bench --head-dim": ["3.5"],
    "run --q q.npy --k k.npy --o o.npy --v": [""], "run --q q.npy --k k.npy --v v.npy --o": [""],
}


def misuses():
    for line in MISUSES.splitlines():
        for entry in re.split(r" {2,}(?=\S.* -> )", line) if line else ():
            text, word = entry.split("->")
            yield arguments_of(text), word.strip()
    for text, values in WRONG_VALUES.items():
        for value in values:
            yield arguments_of(text) + ([] if value is None else [value]), text.split()[-1]


def arguments_of(text):
    first, *rest = text.replace(r"\n", "\n").split(" ")
    rest = [word for word in rest if word]
    if first == "QKV":
        return QKV + rest
    if first == "FILES":
        files = [name[:-1] if name.endswith(".") else f"{name}.npy" for name in rest]
        return ["run"] + [word for pair in zip(["--q", "--k", "--v", "--o"], files)
                          for word in pair]
    return ([first] if first else []) + rest


def save_misfits():
    """q.npy, k.npy, v.npy that fit, and files that do not."""
    save_qkv()
    for name, shape in {"x": (3, 4), "k_dim": (2, 5, 7), "v_keys": (2, 4, 6), "v_heads": (3, 5, 6),
                        "k_heads": (3, 5, 8), "k_none": (0, 5, 8), "v_none": (0, 5, 6),
                        "q4": (1, 2, 5, 8), "k4": (2, 2, 5, 8), "v4": (2, 2, 5, 8), "one": (8,),
                        "five": (1, 1, 1, 2, 3), "no_dim": (2, 5, 0), "scalar": ()}.items():
        save(f"{name}.npy", normal(*shape))
    good = pathlib.Path("v.npy").read_bytes()
    pathlib.Path("short.npy").write_bytes(good[:200])
    pathlib.Path("integers.npy").write_bytes(good.replace(b"<f4", b"<i4"))
    pathlib.Path("big.npy").write_bytes(
        good.replace(b"(2, 5, 6), }          ", b"(2, 5, 6000000000000)}"))
    pathlib.Path("text.npy").write_text("no array at all\n")
    pathlib.Path("directory").mkdir()
    for name in ("o.npy", "lse.npy", "y.npy"):
        pathlib.Path(name).write_text("old")


@pytest.mark.parametrize("number", EVERY)
def test_bad_use_exits_2_names_the_culprit_and_touches_nothing(number):
    save_misfits()
    before, all_ = contents(), list(misuses())
    assert len(all_) >= 110
    for arguments, word in all_:
        refused(number, *arguments, says=word)
        assert contents() == before, arguments
    for longest in [["a" * 3000], ["run", "--x", "a" * 3000, "--y", "y.npy"],
                    ["run", "--" + "a" * 3000], ["check", "--variant", "a" * 3000]]:
        refused(number, *longest)


@pytest.mark.parametrize("number, variant", [(1, "naive"), (1, "threads"), (2, "recompute")])
def test_scratch_that_does_not_fit_is_refused(number, variant):
    """S and P of 300,000 queries and keys."""
    for name in "qkv":
        save(f"{name}.npy", np.zeros((300000, 1)))
    result = stage(number, *QKV, "--variant", variant, want=2)
    assert "scratch of 720 GB does not fit" in result.err and result.err.count("\n") == 1
    assert "o.npy" not in contents()


def test_variant_that_cannot_do_the_problem_is_refused():
    """It is judged by what it can do before it is asked where it can run."""
    save("x.npy", normal(3, 4)), save("long.npy", normal(2, 16384))
    pathlib.Path("y.npy").write_text("old")
    before = contents()
    for number, arguments in [
            (3, "run --x long.npy --y y.npy --variant gpu_registers"),  # f32 in 16 bits
            (3, "run --x x.npy --y y.npy --variant normalised"),
            (3, "run --q x.npy --k x.npy --v x.npy --o y.npy --variant gpu_cluster"),
            (5, "run --x x.npy --y y.npy --variant wgmma"),
            (3, "bench --rows 2 --cols 16384 --variant gpu_registers --csv new.csv"),
            (4, "bench --op softmax --quick --variant tiled --csv new.csv"),
            (4, "bench --quick --variant scan --csv new.csv"),
            (5, "bench --rows 3 --cols 4 --variant wgmma --csv new.csv"),
            (5, "bench --rows 3 --cols 4 --csv new.csv")]:
        refused(number, *arguments.split(), says="not support")
        assert contents() == before, arguments
