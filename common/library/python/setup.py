"""setup.py: pip install common/library/python: builds the C library with make (with CUDA where
nvcc and a GPU are found) and puts it into the package."""
import os
import shutil
import subprocess

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.dist import Distribution

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.abspath(os.path.join(HERE, *[os.pardir] * 3))


class BuildWithLibrary(build_py):
    """build_py, and libfive_steps.so beside the modules."""

    def run(self):
        super().run()
        library = os.environ.get("FIVE_STEPS_LIBRARY")
        if not library:
            if not os.path.exists(os.path.join(TREE, "Makefile")):
                raise SystemExit("install from the repository: pip install "
                                 "REPOSITORY/common/library/python")
            subprocess.run(["make", "-C", TREE, "library"], check=True)
            library = os.path.join(TREE, "build", "libfive_steps.so")
        shutil.copy(library, os.path.join(self.build_lib, "five_steps", "libfive_steps.so"))


class ForThisMachine(Distribution):
    """The wheel holds machine code."""

    def has_ext_modules(self):
        return True


setup(cmdclass={"build_py": BuildWithLibrary}, distclass=ForThisMachine)
