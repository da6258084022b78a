"""Attacks by programs that run other programs: a rule must see the command that is run in the end."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from teamcli.agent.tool import Executes
from teamcli.permissions.decide import decide
from teamcli.permissions.policy import Mode, Policy, Verdict
from teamcli.permissions.rules import parse_rules
from tests.redteam.marker import DENIED, attempt, make_marker, marks
from tests.support.program import Program

ROOT = Path("/work space/project")
WRAPPERS = (
    "env xargs nice nohup timeout stdbuf setsid ionice command exec builtin eval bash sh zsh dash fish find fd "
    "parallel watch script flock taskset chrt setarch unshare time coproc busybox trap alias source ls echo cat git "
    "tar sort rg sed awk make man ssh rsync split complete mapfile hash enable strace prlimit printf"
)
ATTACKS = {
    "env": "env zap",
    "env with variables": "env A=1 B=2 zap",
    "env with an option whose value is an allowed program": "env -u ls zap",
    "env with the name of the program set": "env -a ls zap",
    "env with a long option that takes the next word": "env --argv0 ls zap",
    "env with a shortened option": "env --spl='zap x'",
    "env -S": "env -S 'zap x'",
    "env -S in a bundle": "env -iS 'zap x'",
    "env -S with a shell behind it": "env -S 'sh -c' 'A=1; zap'",
    "env -S with its own blanks": "env -S 'zap\\_x'",
    "env that is given its command": "echo zap | xargs env",
    "xargs": "echo a | xargs zap",
    "xargs -I with a shell": "echo zap | xargs -I% sh -c %",
    "xargs with the command in its input": "echo zap | xargs -I% % x",
    "xargs with an unknown option": "xargs --process-slot-var ls zap",
    "nice": "nice -n 5 zap",
    "nice within nice": "nice nice nice zap",
    "timeout": "timeout -k 1 5 zap",
    "timeout with an option of a later version": "timeout --new-option ls 5 zap",
    "stdbuf with separate values": "stdbuf --output L zap",
    "setsid": "setsid --wait zap",
    "flock": "flock /tmp/x zap",
    "flock -c": "flock /tmp/x -c 'zap x'",
    "flock -c with the command in its input": "flock f -c 'echo zap | xargs env'",
    "taskset": "taskset -c 0 zap",
    "setarch without an architecture": "setarch -R zap ls",
    "prlimit": "prlimit --nofile=9 zap",
    "strace that writes to a command": "strace -o '|zap' ls",
    "busybox": "busybox sh -c zap",
    "uv run": "uv run zap",
    "npx": "npx -y zap",
    "the loader": "/lib64/ld-linux-x86-64.so.2 /usr/bin/zap",
    "command": "command -p zap",
    "builtin eval": "builtin eval zap",
    "exec with another name": "exec -a ls zap",
    "eval of pieces": "eval 'za''p' x",
    "eval of eval": "eval 'eval \"zap x\"'",
    "bash -c": "bash -c 'zap x'",
    "bash -c with its options behind": "bash -c -x 'zap x'",
    "bash -c in a bundle with a value": "bash -cO extglob 'zap x'",
    "bash -lc": "bash -lc 'true; zap'",
    "bash -c with the command in its arguments": "bash -c '\"$@\"' ls zap",
    "bash -c with the command in its name": "bash -c '$0' zap",
    "bash that reads a here-string": "bash <<< zap",
    "bash that reads a here-document": "bash <<E\nzap\nE",
    "bash that reads a pipe": "echo zap | bash",
    "bash that reads what was encoded": "echo emFwCg== | base64 -d | sh",
    "bash with a start-up file": "bash --rcfile <(echo zap) -i",
    "zsh, which has its own ways": "zsh -c '=zap x'",
    "script as elsewhere": "script -q /dev/null zap",
    "fd in a bundle": "fd -Hx zap",
    "fd with a value": "fd . --exec=zap",
    "xargs with a shortened option": "echo zap | xargs --rep=% sh -c %",
    "git alias from the environment": "V='!zap' git --config-env=alias.x=V x",
    "git alias from variables": "GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=alias.x GIT_CONFIG_VALUE_0='!zap' git x",
    "git rebase in a bundle": "git rebase -ix 'zap x' HEAD",
    "tar in the old style": "tar cIf zap a.tar x",
    "tmux": "tmux new-session -d 'zap x'",
    "sed with two scripts": "sed -e p -ne '1e zap' f",
    "awk by an indirect call": 'awk \'BEGIN{f="system"; @f("zap")}\'',
    "fish": "fish --command='zap x'",
    "ten shells": "bash -c \"bash -c 'bash -c zap'\"",
    "too many shells": "env " * 30 + "zap",
    "find -exec": "find . -exec zap {} +",
    "find -execdir": "find . -execdir zap \\;",
    "find -ok": "find . -ok zap \\;",
    "find with two actions": "find . -exec echo {} + -exec zap \\;",
    "find with a plus that ends nothing": "find . -exec sh + -c zap \\; -exec zap ;",
    "find that runs what it finds": "find . -name zap -exec {} \\;",
    "fd": "fd . -x zap",
    "parallel": "parallel zap ::: a",
    "parallel with commands as arguments": "parallel ::: 'zap x'",
    "parallel with an unknown option": "parallel --tag -N 2 zap ::: a",
    "watch": "watch -n 1 zap",
    "script": "script -qc 'zap x' /dev/null",
    "script with a long option": "script --command='zap x' /dev/null",
    "time": "time -p zap",
    "time and not": "time ! zap",
    "coproc": "coproc zap",
    "trap": "trap zap EXIT",
    "trap behind dashes": "trap -- 'zap x' EXIT",
    "alias": "shopt -s expand_aliases; alias ls=zap\nls",
    "a function with the name of an allowed program": "ls() { zap; }; ls",
    "hash": "hash -p ./zap ls; ls",
    "enable": "enable -f ./zap.so ls",
    "complete": "complete -C 'zap x' ls",
    "mapfile": "mapfile -c 1 -C zap a",
    "source": "source <(echo zap)",
    "git alias": "git -c alias.x='!zap' x",
    "git alias that pushes": "git -c alias.x=push x",
    "git pager": "git -c core.pager='zap x' log",
    "git in another directory": "git -C . push",
    "git without a pager": "git --no-pager push",
    "git submodule foreach": "git submodule foreach 'zap x'",
    "git bisect run": "git bisect run zap",
    "git rebase -x": "git rebase -x 'zap x' HEAD",
    "git grep -O": "git grep -Ozap x",
    "git by a remote helper": "git fetch 'ext::zap x'",
    "git config": "git config alias.x '!zap'",
    "tar": "tar --use-compress-program=zap -cf x y",
    "tar by a checkpoint": "tar cf x --checkpoint=1 --checkpoint-action=exec=zap y",
    "sort": "sort --compress-program=zap x",
    "rg": "rg --pre zap x",
    "rsync": "rsync -e 'zap x' a b",
    "man": "man -P zap ls",
    "split": "split --filter='zap x' f",
    "awk": "awk 'BEGIN{system(\"zap\")}'",
    "sed": "sed 's/a/zap/e' f",
    "make": "make --eval='x:;zap'",
}
ONLY_ASKED_ABOUT = {
    "awk",
    "awk by an indirect call",
    "sed",
    "sed with two scripts",
    "make",
    "strace that writes to a command",
}
"""The program that these run stands in a language of their own: no rule allows them, and in bypassPermissions nobody
sees it. `docs/permissions.md` says so."""


def verdict(command: str, mode: Mode, allow: str, deny: str = "") -> Verdict:
    return decide(Policy(mode, parse_rules(allow), (), parse_rules(deny)), "bash", Executes(command), ROOT).verdict


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_wrapper_is_allowed_to_run_what_is_not(attack: str) -> None:
    allowed = ", ".join(f"bash({name}:*)" for name in WRAPPERS.split()) + ", bash(.:*)"
    command = ATTACKS[attack]
    if "push" not in command and "alias that pushes" not in attack:
        assert verdict(command, Mode.DEFAULT, allowed) is not Verdict.ALLOW
    assert verdict(command, Mode.DEFAULT, allowed, DENIED) is not Verdict.ALLOW


@pytest.mark.parametrize("attack", [name for name in ATTACKS if name not in ONLY_ASKED_ABOUT])
def test_no_wrapper_hides_a_denied_command_if_no_one_is_asked(attack: str) -> None:
    assert verdict(ATTACKS[attack], Mode.BYPASS_PERMISSIONS, "", DENIED) is Verdict.DENY
    assert verdict(ATTACKS[attack], Mode.DEFAULT, "bash", DENIED) is not Verdict.ALLOW


@pytest.mark.parametrize(
    "attack", [name for name in ATTACKS if name not in ONLY_ASKED_ABOUT and "push" not in ATTACKS[name]]
)
def test_no_wrapper_hides_what_is_always_blocked(attack: str) -> None:
    """`sudo` in the place of the marker: where it is plain to see, no mode lets it through."""
    command = ATTACKS[attack].replace("zap", "sudo")
    seen = verdict(command, Mode.BYPASS_PERMISSIONS, "")
    asked = verdict(command, Mode.DEFAULT, ", ".join(f"bash({name}:*)" for name in WRAPPERS.split()))
    assert seen is Verdict.DENY or asked is Verdict.ASK


def test_the_whole_program_blocks_wrapped_commands_if_no_one_is_asked(program: Program) -> None:
    make_marker(program)
    commands = [ATTACKS[name] for name in ATTACKS if name not in ONLY_ASKED_ABOUT]
    ran, said = attempt(program, commands, "--permission-mode", "bypassPermissions", "--disallowedTools", DENIED)
    assert marks(program) == []
    assert [each for each in said if not re.search("den(ies|y) this call|blocked", each)] == []
    assert ran.code == 0


def test_the_whole_program_blocks_wrapped_commands_under_allow_rules(program: Program) -> None:
    make_marker(program)
    allowed = ",".join(f"bash({name}:*)" for name in WRAPPERS.split() if name != "git")
    ran, said = attempt(program, ATTACKS.values(), "--allowedTools", allowed)
    assert marks(program) == []
    assert [each for each in said if "nobody can be asked" not in each] == []
    assert ran.code == 4


def test_the_marker_runs_if_it_is_allowed(program: Program) -> None:
    """Else the tests above would prove nothing."""
    make_marker(program)
    attempt(program, ["env -u ls zap", "bash -c 'zap x'"], "--allowedTools", "bash")
    assert marks(program) == ["zap ", "zap x"] or sorted(marks(program)) == ["zap ", "zap x"]
