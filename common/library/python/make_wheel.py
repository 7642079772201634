"""make_wheel.py: `pip install common/library/python`: builds the C library with make (with CUDA
where nvcc and a GPU are found) and puts it into the package.  A build backend of Python's
packaging standard (PEP 517) that needs nothing else, so the installation works without a net.

$FIVE_STEPS_LIBRARY names a libfive_steps.so that is taken instead of building one."""
import base64
import hashlib
import os
import pathlib
import re
import subprocess
import sysconfig
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
TREE = HERE.parents[2]
VERSION = re.search(r'__version__ = "(.*)"', (HERE / "five_steps/__init__.py").read_text())[1]
INFO = f"five_steps-{VERSION}.dist-info"
METADATA = f"""Metadata-Version: 2.1
Name: five_steps
Version: {VERSION}
Summary: Exact attention and softmax: the kernels of Softmax to FlashAttention in five steps
Requires-Python: >=3.9
"""


def _library():
    named = os.environ.get("FIVE_STEPS_LIBRARY")
    if named:
        return pathlib.Path(named)
    if not (TREE / "Makefile").exists():
        raise SystemExit("install from the repository: pip install REPOSITORY/common/library/python")
    subprocess.run(["make", "-C", str(TREE), "library"], check=True)
    return TREE / "build/libfive_steps.so"


def _tag():
    """For any Python 3 on this kind of machine: the library is reached by ctypes."""
    return "py3-none-" + sysconfig.get_platform().replace("-", "_").replace(".", "_")


def _digest(data):
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Writes the wheel; returns its name."""
    del config_settings, metadata_directory
    files = {f"five_steps/{path.name}": path.read_bytes()
             for path in sorted((HERE / "five_steps").glob("*.py"))}
    files["five_steps/libfive_steps.so"] = _library().read_bytes()
    files[f"{INFO}/METADATA"] = METADATA.encode()
    files[f"{INFO}/WHEEL"] = (f"Wheel-Version: 1.0\nGenerator: make_wheel\n"
                              f"Root-Is-Purelib: false\nTag: {_tag()}\n").encode()
    record = [f"{name},sha256={_digest(data)},{len(data)}\n" for name, data in files.items()]
    files[f"{INFO}/RECORD"] = "".join(record + [f"{INFO}/RECORD,,\n"]).encode()
    name = f"five_steps-{VERSION}-{_tag()}.whl"
    with zipfile.ZipFile(os.path.join(wheel_directory, name), "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, data in files.items():
            wheel.writestr(path, data)
    return name
