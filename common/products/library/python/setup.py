"""setup.py: the part of the package that make builds.

One wheel serves every x86-64 processor: libfive_steps.so for those since 2009 (x86-64-v2), with the
GPU's code where that is built, and beside it the CPU's part for AVX2 (v3) and AVX-512 (v4).
c_library.py takes the best that the processor has.  An editable installation (pip install -e) uses
build/libfive_steps.so of the tree, built for this processor."""
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.sdist import sdist

HERE = pathlib.Path(__file__).resolve().parent
TREE = next((tree for tree in (HERE / "tree", HERE / "../../../..") if (tree / "Makefile").exists()), None)
if TREE is None:
    raise SystemExit("no Makefile: install from the repository, or from its sdist")
HEADER = TREE / "common/products/library/five_steps.h"
TENSORS = "five_steps_tensors.abi3.so"  # made where Python has its headers
LEVELS = ("v2", "v3", "v4") if platform.machine() == "x86_64" else ("",)


def make(*arguments):
    subprocess.run(["make", "-C", str(TREE), "library", f"PACKAGE_PYTHON={sys.executable}", *arguments],
                   check=True)


class Build(build_py):
    """The library and its header, into the package."""

    def run(self):
        super().run()
        if self.editable_mode:
            return make()
        package = pathlib.Path(self.build_lib) / "five_steps"
        shutil.copy(HEADER, package)
        for level in LEVELS:
            build = f"build/wheel{level}"
            settings = [f"ARCH_FLAGS=-march=x86-64-{level}"] if level else []
            make(f"BUILD={build}", *settings, *(["CUDA="] if level in ("v3", "v4") else []))
            name = f"libfive_steps-{level}.so" if level in ("v3", "v4") else "libfive_steps.so"
            shutil.copy(TREE / build / "libfive_steps.so", package / name)
            if (TREE / build / TENSORS).exists():
                shutil.copy(TREE / build / TENSORS, package)
        openmp = subprocess.run([os.environ.get("CC", "cc"), "-print-file-name=libgomp.so.1"], check=True,
                                stdout=subprocess.PIPE).stdout.decode().strip()
        if os.path.isabs(openmp):  # a small system has none, and the library looks beside itself
            shutil.copy(openmp, package)


class Wheel(bdist_wheel):
    """For any Python 3 on this kind of machine: the library is reached by ctypes, and the extension is
    for any from 3.10; an older one does without."""

    def get_tag(self):
        """For every Linux whose glibc has the newest version that a library asks for (PEP 600)."""
        place = super().get_tag()[2]
        files = pathlib.Path(self.get_finalized_command("build").build_lib).glob("five_steps/*.so*")
        versions = [int(n) for path in files for n in re.findall(rb"GLIBC_2\.(\d+)", path.read_bytes())]
        return "py3", "none", place.replace("linux_", f"manylinux_2_{max(versions)}_") if versions else place


class Platform(Distribution):
    """Files of this kind of machine alone."""

    def has_ext_modules(self):
        return True


class Sources(sdist):
    """The package with the tree that its library is made from."""

    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, files)
        tree = pathlib.Path(base_dir) / "tree"
        tree.mkdir()
        listed = subprocess.run(["git", "-C", str(TREE), "ls-files", "-z", "Makefile", "LICENSE", "common",
                                 "0*"], check=True, stdout=subprocess.PIPE).stdout.decode()
        for name in filter(None, listed.split("\0")):
            if (TREE / name).is_file():
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(TREE / name, tree / name)


setup(version=re.search(r'FIVE_STEPS_VERSION "(.*)"', HEADER.read_text())[1],
      distclass=Platform, cmdclass={"build_py": Build, "bdist_wheel": Wheel, "sdist": Sources})
