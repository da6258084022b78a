"""`python -m teamcli` and the `teamcli` command."""

import contextlib
import gc
import os
import sys


def main() -> int:
    gc.disable()  # nothing that loading makes is garbage; `app` turns it on again
    if sys.argv[1:] in (["--version"], ["-V"]):  # answered before anything else is loaded
        from teamcli import __version__

        with contextlib.suppress(OSError):  # below it is told what is wrong with standard output
            os.write(1, f"teamcli {__version__}\n".encode())
            return 0
    try:
        from teamcli.cli import run

        return run(sys.argv[1:])
    except KeyboardInterrupt:  # while loading, before anything had begun
        return 130


if __name__ == "__main__":
    sys.exit(main())
