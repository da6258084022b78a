"""Command lines that run a denied command in disguise, and real bash as the witness of whether they do.

The denied program is a marker that only writes down how it was called. Everything happens in a scratch directory.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hypothesis import strategies as st

BASH = Path("/bin/bash")
DENIED = ("zap x", "git push")
_TIMEOUT_SECONDS = 20


@dataclass(frozen=True)
class Witness:
    """A directory in which lines are run, with the marker programs `zap` and `git`."""

    directory: Path

    @classmethod
    def made_in(cls, directory: Path) -> Witness:
        programs = directory / "bin"
        programs.mkdir()
        for name in ("zap", "git"):
            _write_marker(programs / name, directory / "log")
        return cls(directory)

    def saw(self, line: str) -> list[str]:
        """How the marker programs were called while bash ran the line."""
        log = self.directory / "log"
        log.unlink(missing_ok=True)
        with tempfile.TemporaryDirectory(dir=self.directory) as scratch:
            _write_marker(Path(scratch) / "zap", log)
            _run_in_own_session(line, Path(scratch), self.directory / "bin")
        return log.read_text(errors="replace").splitlines() if log.exists() else []

    def saw_denied(self, line: str) -> bool:
        return any(call.startswith(("zap", "git push")) for call in self.saw(line))


def _write_marker(path: Path, log: Path) -> None:
    path.write_text(f'#!/bin/sh\nprintf "%s\\n" "${{0##*/}} $*" >> {shlex.quote(str(log))}\n')
    path.chmod(0o755)


def _run_in_own_session(line: str, directory: Path, programs: Path) -> None:
    environment = {"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(directory), "LC_ALL": "C.UTF-8"}
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(
        [str(BASH), "-c", line],
        cwd=directory,
        env=environment,
        stdin=quiet,
        stdout=quiet,
        stderr=quiet,
        start_new_session=True,
    )
    try:
        process.wait(_TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        pass
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _plain(character: str) -> str:
    return character


_CHARACTER_STYLES = (
    _plain,
    _plain,
    "'{}'".format,
    '"{}"'.format,
    "\\{}".format,
    "{}''".format,
    '""{}'.format,
    "$'{}'".format,
    lambda c: f"$'\\x{ord(c):02x}'",
    lambda c: f"$'\\{ord(c):03o}'",
    lambda c: f"$'\\u{ord(c):04x}'",
    lambda c: f"{c}\\\n",
    '$"{}"'.format,
    "{}$@".format,
    "{}$()".format,
    "``{}".format,
    "{}${{nothing}}".format,
    "{}${{nothing:-}}".format,
    "$(echo {})".format,
    "{{{},}}".format,
)
_WORD_STYLES = (
    shlex.quote,
    "'{}'".format,
    '"{}"'.format,
    "$'{}'".format,
    "$(echo {})".format,
    "`echo {}`".format,
    "$(printf %s {})".format,
    "${{nothing:-{}}}".format,
    "${{nothing-{}}}".format,
    '"${{nothing:={}}}"'.format,
    "$({{ echo {}; }})".format,
    "$(rev <<< '{}' | rev)".format,
)


@st.composite
def disguised_words(draw: st.DrawFn, word: str) -> str:
    if draw(st.booleans()):
        return "".join(draw(st.sampled_from(_CHARACTER_STYLES))(character) for character in word)
    return draw(st.sampled_from(_WORD_STYLES))(word)


_SIMPLE = (
    "env {}",
    "env -i PATH=$PATH {}",
    "env -u HOME A=1 {}",
    "env A=1 B=2 {}",
    "env - PATH=$PATH {}",
    "env --unset HOME {}",
    "env --uns=HOME {}",
    "env --chdir . {}",
    "env --default-signal {}",
    "nice {}",
    "nice -n 1 {}",
    "nice -1 {}",
    "nice --adjustment 1 {}",
    "nohup {}",
    "timeout 5 {}",
    "timeout -k 1 5 {}",
    "timeout --signal TERM 5 {}",
    "timeout -s9 5s {}",
    "stdbuf -o L {}",
    "stdbuf --output L {}",
    "stdbuf -i0 -oL {}",
    "setsid -w {}",
    "setsid --wait {}",
    "ionice -c 3 {}",
    "command {}",
    "command -p -- {}",
    "flock f {}",
    "flock -n f {}",
    "taskset -c 0 {}",
    "setarch -R {}",
    "linux64 {}",
    "prlimit --nofile=99 {}",
    "unshare {}",
    "echo a | xargs {}",
    "echo a | xargs -n 1 {}",
    "echo a | xargs -t --max-args 1 {}",
    "echo a | xargs -0 -I % {}",
    "echo a | xargs --replace {}",
    "echo a | xargs -P1 -d a {}",
    "echo a | xargs --process-slot-var S {}",
    "echo a | xargs -E e -L 1 {}",
    "find . -maxdepth 0 -exec {} \\;",
    "find . -maxdepth 0 -exec {} {{}} +",
    "find . -maxdepth 0 -name . -execdir {} ';'",
    "find . -maxdepth 0 -exec echo + \\; -exec {} \\;",
    "echo a | xargs -I ls {}",
    "echo a | xargs -a /dev/null -I ls {}",
    "env -u ls {}",
    "env --unset ls {}",
    "flock ls {}",
    "find . -maxdepth 0 -name ls -o -exec {} \\;",
    "find . -maxdepth 0 -exec true {{}} + -exec {} \\;",
    "exec {}",
    "exec -a ls {}",
    "exec -a name {}",
    "time {}",
    "time -p {}",
    "! {}",
    "coproc {}",
    "A=1 {}",
    "A=1 B=$(echo) {}",
    "A+=1 {}",
    "> f {}",
    "2>&1 {}",
    "{} > f",
    "{} 2> /dev/null",
    "{} >&2",
    "{} < /dev/null",
    "{} <<< text",
    "{} <<E\ntext\nE\n",
    "{} &> f",
    "{} # comment",
    "{} # it's",
)
_RUNNING_A_LINE = (
    "bash -c {}",
    "sh -c {}",
    "dash -c {}",
    "bash -ec {}",
    "bash -cO extglob {}",
    "bash -o pipefail -c {}",
    "bash -c -- {}",
    "bash +x -c {} name",
    "bash --norc --noprofile -c {}",
    "eval {}",
    "eval -- {}",
    "builtin eval {}",
    "command eval {}",
    "echo {} | bash",
    "echo {} | sh -s",
    "printf %s {} | bash",
    "printf '%s\\n' {} | bash /dev/stdin",
    "bash <<< {}",
    "bash -s <<< {}",
    "source <(echo {})",
    ". /dev/stdin <<< {}",
    "bash <(echo {})",
    "trap {} EXIT",
    "trap -- {} 0",
    "trap {} DEBUG; true",
    "env -S 'bash -c' {}",
    "flock f -c {}",
    "script -qc {} /dev/null",
    "script --quiet --command {} /dev/null",
    "find . -maxdepth 0 -exec bash -c {} \\;",
    "echo a | xargs -I % sh -c {}",
    "echo a | mapfile -c 1 -C {} a",
    "shopt -s expand_aliases; alias zzz={}\nzzz",
    "X={}; eval $X",
    'X={}; eval "$X"',
    'X={}; bash -c "$X"',
    "X={}; $X",
    "export X={}; bash -c '$X'",
    "set -- {}; eval $1",
    "set -- {}; $*",
    "bash -c 'eval \"$1\"' name {}",
    'read -r X <<< {}; eval "$X"',
    "X=({}); eval ${{X[0]}}",
    'f() {{ eval "$@"; }}; f {}',
    "BASH_ENV=<(echo {}) bash -c true",
    "PROMPT_COMMAND={} bash -c 'eval \"$PROMPT_COMMAND\"'",
    'printf -v X %s {}; eval "$X"',
    'declare X={}; eval "$X"',
    'for X in {}; do eval "$X"; done',
    'while read -r X; do eval "$X"; done <<< {}',
)
_LINES = (
    "true; {}",
    "true && {}",
    "false || {}",
    "echo | {}",
    "{} | cat",
    "{} |& cat",
    "{} &\nwait",
    "true\n{}",
    "true # \\\n{}",
    "# {{\n{}",
    "({})",
    "{{ {}\n}}",
    "{{ {} \n}} > f",
    "if {}\nthen true; fi",
    "if true; then {}\nfi",
    "if false; then true; else {}\nfi",
    "while {}\ndo break; done",
    "until {}\ndo break; done",
    "while true; do {}\nbreak; done",
    "for i in 1; do {}\ndone",
    "for i in $({}\n); do true; done",
    "for ((i=0; i<1; i++)); do {}\ndone",
    "case a in a) {}\n;; esac",
    "case a in (a) {}\n;; esac",
    "case $({}\n) in *) true;; esac",
    "f() {{ {}\n}}; f",
    "function f {{ {}\n}}; f",
    "f() ( {}\n); f",
    "ls() {{ {}\n}}; ls",
    "echo $({}\n)",
    'echo "$({}\n)"',
    'echo "a $(echo "$({}\n)") b"',
    "X=$({}\n)",
    "X=$({}\n) true",
    "export X=$({}\n)",
    "X=(a $({}\n))",
    "echo ${{nothing:-$({}\n)}}",
    'echo "${{nothing:+}}${{nothing:-$({}\n)}}"',
    "echo <({}\n) > /dev/null; cat <({}\n)",
    "cat < <({}\n)",
    "echo > >({}\n); wait; true",
    "[[ -n $({}\n) ]]",
    '[ -n "$({}\n)" ]',
    "echo $(( 1 + $({}\n) ))",
    "echo $[ $({}\n) + 1 ]",
    "(( X = $({}\n) + 1 ))",
    "X[$({}\n)]=1",
    "echo ${{X[$({}\n)]}}",
    "cat <<E\n$({}\n)\nE\n",
    "cat <<-E\n\t$({}\n)\n\tE\n",
    "cat <<E > f\n${{nothing:-$({}\n)}}\nE\n",
    "cat <<< $({}\n)",
    "echo `{}\n`",
    "time {{ {}\n}}",
    "! {{ {}\n}}",
    "coproc {{ {}\n}}; wait",
    "coproc NAME {{ {}\n}}; wait",
    "{{ true; }}; {}",
    "echo a > f; {}",
    "echo ';' '#' \"'\" ; {}",
    "echo \\# ; {}",
    "echo a#b; {}",
    "echo $'it\\'s'; {}",
    'echo "\\""; {}',
    "cat <<'E'\n'\nE\n{}",
    'cat <<"E"\n"\nE\n{}',
    "cat << E; {}\n'\nE\n",
    "select i in a; do {}\nbreak; done <<< 1",
    "bash <<'E'\n{}\nE\n",
    "bash <<E\n{}\nE\n",
    "sh <<-'E'\n{}\nE\n",
    "cat <<'E' | bash\n{}\nE\n",
    "x='a[$({})]'; echo $((x))",
    "x='a[$({})]'; declare -i y=x",
    "test -v 'a[$({})]'",
    "printf -v 'a[$({})]' x",
    "x='$({})'; echo ${{x@P}}",
    "PS4='$({})'; set -x; true",
    "PS4='$({})' bash -xc true",
    "env 'BASH_FUNC_ls%%=() {{ {}; }}' bash -c ls",
    "x='a[$({})]'; [[ $x -eq 0 ]]",
    "let 'a[$({})]=1'",
)

_WHOLE = (
    "echo zap x | xargs env",
    "echo zap x | xargs -n 2 command",
    "echo zap | xargs -I% % x",
    "echo zap | xargs -I% sh -c %",
    "echo zap | xargs -I% sh -c '% x'",
    "echo zap x | xargs nice timeout 5",
    "printf 'zap\\nx\\n' | xargs env",
    "find . -name zap -exec {} \\;",
    "find . -name zap -execdir {} +",
    "find . -name zap -exec sh -c '{}' \\;",
    "find . -name zap -exec sh -c '$0' {} \\;",
    "ls zap | xargs -I% ./%",
    "ls z* | xargs -n1 sh -c './$0'",
    "ls z* | while read X; do ./$X; done",
    "./z?p",
    "./z*",
    "./[z]ap",
    "./{zap,}",
    "{zap,x}",
    "{git,push}",
    "~/zap",
    "~+/zap",
    "$PWD/zap",
    '"$PWD"/zap',
    '"$PWD/zap"',
    "$PWD/z*",
    "cd . && ./zap",
    "cd $PWD; ./zap",
    "hash -p ./zap ls; ls",
    "set -- zap; $@",
    "set -- zap; $1 x",
    "IFS=,; X=zap,x; $X",
    "X=(zap x); ${X[@]}",
    'X=(zap x); "${X[@]}"',
    "declare -n R=X; X=zap; $R",
    "X=Y; Y=zap; ${!X}",
    "X=ZAP; ${X,,}",
    "X=zop; ${X/o/a}",
    "X=xxzap; ${X:2}",
    "X=zap.sh; ${X%.sh}",
    "compgen -C zap x",
    "exec 3<<< zap; bash <&3",
    "exec 3<<< zap; . /dev/fd/3",
    "PATH=.:$PATH zap",
    "X='zap x'; $X",
    "X='git push'; $X",
    "X=git; Y=push; $X $Y",
    "X=git; $X push",
    "X=push; git $X",
    "git pus{h,}",
    "git $(echo push)",
    "git `echo push`",
    "for X in push; do git $X; done",
    "for X in zap git; do $X push; done",
    "f() { git $@; }; f push",
    "f() { git $1; }; f push",
    "f() { $@; }; f git push",
    "alias p='git push'; eval p",
    "git() { command git push; }; git status",
    "command git push",
    "bash -c 'git $0' push",
    "bash -c '$@' zap zap x",
    "bash -c '$0' zap",
    "sh -c 'exec \"$@\"' ls zap",
    "env X=zap bash -c '$X'",
    "X=zap bash -c '$X'",
    "export X=zap; sh -c '$X'",
    "coproc zap",
    "echo push | xargs git",
    "echo push | xargs -I% git %",
    "echo 'git push' | xargs -I% bash -c %",
    "xargs -a <(echo push) git",
    "xargs git <<< push",
    "read -r A B <<< 'git push'; $A $B",
    "printf -v A %s zap; $A",
    "mapfile -t A <<< zap; ${A[0]}",
    "getopts z A -z; ${A}ap",
    "A=z; A+=ap; $A",
    "A=$'z\\x61p'; $A",
    "$'\\172ap'",
    "$(printf '\\172ap')",
    "$(echo emFw | base64 -d)",
    "echo emFwCg== | base64 -d | sh",
    "tr a-z n-za-m <<< mnc | sh",
    "eval $(echo zap)",
    'eval "$(echo emFw | base64 -d)"',
    ". <(echo zap)",
    "source /dev/stdin <<< zap",
    "bash /dev/fd/0 <<< zap",
    "cat <<< zap | bash",
    "tee >(bash) <<< zap; wait",
    "bash <<< $'za\\x70'",
    "shopt -s expand_aliases\nalias ls='zap '\nls",
    "BASH_ALIASES[q]=zap; shopt -s expand_aliases; eval q",
    "BASH_CMDS[ls]=./zap; ls",
    "command_not_found_handle() { zap; }; nonesuch",
    "trap zap ERR; false",
    "trap zap RETURN; f() { :; }; f",
    "set -T; trap zap DEBUG; f() { :; }; f",
    "complete -C zap q; compgen -C zap",
    "exec zap",
    "(exec zap)",
    "time -- zap",
    "! time zap",
    "time ! zap",
    "if ! zap; then :; fi",
    "while ! zap; do break; done",
    "case zap in $(zap)) ;; *) ;; esac",
    "echo ${X:=$(zap)}",
    "echo ${X/a/$(zap)}",
    "X=a; echo ${X/a/$(zap)}",
    "X=a; echo ${X#$(zap)}",
    "X=a; echo ${X:$(zap; echo 0)}",
    "echo $((`zap`1))",
    'echo "`zap`"',
    'echo "${X:-`zap`}"',
    "echo {1..$(zap)}",
    "echo a >$(zap; echo f)",
    "echo a 2>&1 >`zap; echo f`",
    "echo a <<<`zap`",
    "[[ a =~ $(zap) ]]",
    "[[ a == $(zap) ]]",
    "[[ -v X[$(zap)] ]]",
    "X='a[$(zap)]'; [[ -v $X ]]",
    "X='a[$(zap)]'; [[ X -eq 0 ]]",
    "X='a[$(zap)]'; (( X ))",
    "X='a[$(zap)]'; echo ${Y[X]}",
    "X='a[$(zap)]'; echo ${Y:X}",
    "X='a[$(zap)]'; Y[X]=1",
    "X='a[$(zap)]'; declare -i Y; Y=X",
    "X='a[$(zap)]'; for ((;X;)); do break; done",
    "X='a[`zap`]'; let X",
    "X='$(zap)'; echo \"${X@P}\"",
    "read 'a[$(zap)]' <<< 1",
    "unset 'a[$(zap)]'",
    "declare 'a[$(zap)]=1'",
    "export 'a[$(zap)]=1'",
    "printf %d 'a[$(zap)]'",
    "select X in $(zap); do break; done < /dev/null",
    "function zup() { zap; }; zup",
    "z\\\nap x",
    "git \\\n push",
    "git\tpush",
    "git  push",
    "'git' \"push\"",
    "\\git push",
    "git push;",
    "git push #",
    "1>&2 git push",
    "<<E git push\nE\n",
    "git <<E push\nE\n",
    "git > f push",
    "git 2>&1 push",
    "git <<< a push",
    "{ git push; } 2>&1 | cat",
    "((1)) && git push",
    "[ 1 ] && git push",
    "[[ 1 ]] && git push",
    ": ; git push",
    ": & git push",
    "env -S'git push'",
    "env -S 'git  push'",
    "env '-Sgit push'",
    "env -vS 'git push'",
    "env -S 'A=1 git push'",
    "env -S git push",
    "env --split-string='git push'",
    "env --split-string=git push",
    "env --split='git\\_push'",
    "env -S 'git' 'push'",
    "env -S '-u A git' push",
    "env -S 'sh -c' 'git push'",
    "env -S 'sh -c \"git push\"'",
)

_QUOTES = (
    shlex.quote,
    lambda line: '"' + "".join(f"\\{c}" if c in '\\"$`' else c for c in line) + '"',
    lambda line: "$'" + "".join(f"\\x{ord(c):02x}" if not c.isalnum() else c for c in line) + "'",
    lambda line: "".join(f"'{c}'" if c != "'" else "\\'" for c in line) or "''",
    lambda line: "".join(f"\\{c}" if c != "\n" else "$'\\n'" for c in line),
)


WHOLE = _WHOLE


@st.composite
def disguised_lines(draw: st.DrawFn) -> str:
    """A line that looks like anything but runs, as a rule, a denied command."""
    if draw(st.integers(0, 3)):
        line = " ".join(draw(disguised_words(word)) for word in draw(st.sampled_from(DENIED)).split())
        for _ in range(draw(st.integers(0, 3))):
            line = draw(st.sampled_from(_SIMPLE)).format(line)
    else:
        line = draw(st.sampled_from(_WHOLE))
    for _ in range(draw(st.integers(0, 3))):
        if draw(st.booleans()):
            line = draw(st.sampled_from(_LINES)).replace("{}", "\0").format().replace("\0", line)
        else:
            line = (
                draw(st.sampled_from(_RUNNING_A_LINE))
                .replace("{}", "\0")
                .format()
                .replace("\0", draw(st.sampled_from(_QUOTES))(line))
            )
    return line
