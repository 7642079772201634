#!/bin/sh
# install.sh: does `pip install` of the folder work in a fresh virtual environment, without a
# net?  LIBRARY PLACE: a built libfive_steps.so, an empty folder.  Exit status 77: skipped, why.
set -eu
library=$(realpath "$1") place=$2
python3 -c 'import venv, ensurepip' 2>/dev/null || {
    echo "python3 cannot make virtual environments (python3-venv)"; exit 77; }
python3 -m venv "$place/venv"
FIVE_STEPS_LIBRARY=$library "$place/venv/bin/pip" install -q --disable-pip-version-check \
    --no-build-isolation --no-deps --no-index common/library/python
cd "$place"
"$place/venv/bin/python" - <<'END'
import five_steps
from five_steps.find import library
assert five_steps.__file__.startswith(__import__("sys").prefix), five_steps.__file__
assert library().version == five_steps.__version__, library().version
assert library().so._name.startswith(__import__("sys").prefix), library().so._name
try:
    import numpy as np
except ImportError:
    print("installed; NumPy is not there to call it")
else:
    print("installed;", five_steps.softmax(np.zeros((1, 4), "f4")))
END
"$place/venv/bin/pip" uninstall -q -y five_steps
test ! -e "$("$place/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/five_steps"
