#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: python_test.sh SOURCE-TREE LIBRARY: the tests of the Python package that need no torch, over its sources and the library; 77 where
# there is no pytest or NumPy.
set -euo pipefail
library=$(realpath "$2")
cd "$1"
/usr/bin/python3 -c 'import numpy, pytest' 2>/dev/null || exit 77
tests=bindings/python/tests
UCCLEP_LIBRARY=$library PYTHONPATH=bindings/python PYTHONDONTWRITEBYTECODE=1 timeout 250 /usr/bin/python3 -m pytest -q -p no:cacheprovider --tier=test \
  $tests/test_abi.py $tests/test_tensor.py $tests/test_communicator.py $tests/test_operations.py $tests/test_top.py </dev/null
