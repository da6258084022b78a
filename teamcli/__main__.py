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

import atexit  # noqa: E402
import contextlib  # noqa: E402
import gc  # noqa: E402


def main() -> None:
    """Run, and leave at once: to take apart all that was loaded, as Python does, is a tenth of a short run."""
    code = _run()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # what could be told of them was told when they were used
            stream.flush()
    os._exit(code)


def _run() -> int:
    gc.disable()  # nothing that loading makes is garbage; `app` turns it on again
    if sys.argv[1:] in (["--version"], ["-V"]):  # answered before anything else is loaded
        from teamcli import __version__

        with contextlib.suppress(OSError):  # below it is told what is wrong with standard output
            os.write(1, f"teamcli {__version__}\n".encode())
            return 0
    try:
        from teamcli.cli.main import run

        return run(sys.argv[1:])
    except KeyboardInterrupt:  # while loading, before anything had begun
        return 130


if __name__ == "__main__":
    main()
