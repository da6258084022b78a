"""`python -m teamcli` and the `teamcli` command."""

import os
import sys


def _leave_out_current_directory() -> None:
    """`python -m` looks for modules there first, where a cloned repository could bring a `json.py` of its own.

    Called before anything else is loaded, and uses nothing else: `pathlib` might be such a one.
    """
    try:
        here = os.getcwd()  # noqa: PTH109
    except OSError:  # it is gone, and nothing in it can be loaded
        return
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
    if not sys.flags.safe_path and sys.path[0] in ("", here) and here != ours:
        del sys.path[0]


_leave_out_current_directory()

import contextlib  # noqa: E402
import gc  # noqa: E402


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
