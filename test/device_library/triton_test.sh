#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: triton_test.sh BUILD-TREE SOURCE-TREE LIBRARY-FOLDER      (UCCLEP_LIBRARY names libucclep.so)
# triton_test.py, by a Python that has Triton 3.6: the system's, else that of an environment in the build tree, into which PyPI's
# is installed. Exit code 77: it cannot be had.
set -euo pipefail
tree=$1 source=$2 library=$3
export PYTHONPATH=$source/bindings/python PYTHONDONTWRITEBYTECODE=1
python=/usr/bin/python3
has_triton() { "$1" -c 'import triton; assert triton.__version__ >= "3.6"' 2>/dev/null; }
if ! has_triton $python; then
  environment=$tree/triton-env
  python=$environment/bin/python
  if ! has_triton "$python"; then
    rm -rf "$environment"
    if ! { /usr/bin/python3 -m venv "$environment" && "$environment/bin/pip" install --quiet --no-deps triton==3.6.0; }; then
      echo "triton 3.6 is not installed, and cannot be from PyPI"
      exit 77
    fi
  fi
fi
exec "$python" "$source/test/device_library/triton_test.py" "$source" "$library"
