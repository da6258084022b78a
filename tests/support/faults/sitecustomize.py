"""Loaded by Python itself in the program under test: system calls that fail, or that the program does not survive.

`TEAMCLI_TEST_FAULT` says what happens; see `tests/support/faults/__init__.py`.
"""

import os
import sys

if os.environ.get("TEAMCLI_TEST_FAULT") and sys.orig_argv[1:3] == ["-m", "teamcli"]:
    from tests.support.faults.injection import inject

    inject(os.environ["TEAMCLI_TEST_FAULT"])
