"""`python -m teamcli` and the `teamcli` command."""

import os
import sys


def _drop_current_directory() -> None:
    """`python -m` looks for modules there first, and a cloned repository could contain its own `json.py`.

    Called before anything else is loaded, and uses nothing else: even `pathlib` could come from there.
    """
    try:
        here = os.getcwd()  # noqa: PTH109
    except OSError:  # it was deleted, so nothing can be loaded from it
        return
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
    if not sys.flags.safe_path and sys.path[0] in ("", here) and here != ours:
        del sys.path[0]


_drop_current_directory()

import atexit  # noqa: E402
import contextlib  # noqa: E402
import gc  # noqa: E402


def main() -> None:
    """Run, and exit without Python's cleanup, which takes a tenth of the time of a short run."""
    code = _run()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # their errors were reported when they were used
            stream.flush()
    os._exit(code)


def _run() -> int:
    gc.disable()  # loading creates no garbage; `app` turns it on again
    if sys.argv[1:] in (["--version"], ["-V"]):  # answered before anything else is loaded, for speed
        from teamcli import __version__

        with contextlib.suppress(OSError):  # the code below reports what is wrong with standard output
            os.write(1, f"teamcli {__version__}\n".encode())
            return 0
    try:
        from teamcli.cli.main import run

        return run(sys.argv[1:])
    except KeyboardInterrupt:  # while loading
        return 130


if __name__ == "__main__":
    main()
