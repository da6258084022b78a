"""What rules that deny can read: everyday lines, so that a rule about something else does not deny them."""

from __future__ import annotations

from pathlib import Path

import pytest

from teamcli.permissions.access import Executes
from teamcli.permissions.decide import decide
from teamcli.permissions.policy import Mode, Policy, Verdict
from teamcli.permissions.rules import parse_rules

LINES = [
    'files=($(ls *.py)); echo "${#files[@]}"',
    'for f in $(ls *.py); do echo "$f"; wc -l "$f"; done',
    "for i in 1 2 3; do echo $i; sleep 1; done",
    'while read -r line; do echo "$line"; done < file.txt',
    'if [ -n "$(git status --porcelain)" ]; then git add -A && git commit -m "wip"; fi',
    "if [[ -f a && -d b || $x == y* ]]; then echo yes; else echo no; fi",
    "git log --oneline | head -20 | awk '{print $1}'",
    "grep -rn 'foo$' src | sort | uniq -c | sort -rn | head",
    "find . -name '*.py' -not -path './.venv/*' | xargs wc -l | tail -1",
    'X=$(date +%s); echo "took $((X - 5)) s"',
    "cd src && python -m pytest -q 2>&1 | tail -30",
    "python - <<'EOF2'\nimport os\nprint(os.getcwd(), \"$(x)\")\nEOF2",
    'cat > f.txt <<EOF2\nhello $USER\nit\'s "quoted" ${HOME}/x costs $5\nEOF2',
    "diff <(sort a) <(sort b)",
    "(cd sub && make) && echo ok || { echo failed; exit 1; }",
    "npm run build > /tmp/log 2>&1 & PID=$!; sleep 2; kill $PID",
    'files=(a b "c d"); for f in "${files[@]}"; do echo "$f"; done',
    'echo ${PATH//:/ } ${f%.py} ${f##*/} "${X:-default value}" ${#files[@]}',
    "set -euo pipefail; ls",
    "IFS=$'\\n'; for l in $(cat f); do echo \"$l\"; done",
    "ls -la ~/.config *.md {a,b}.txt",
    "git commit -m \"$(cat <<'END'\nFix `x`\nEND\n)\"",
    "until curl -s localhost:8000; do sleep 1; done",
    "test -f x && rm x || true",
    '! grep -q x f && echo "no x"',
    "sed -n '1,20p' f; echo \"---\"; sed -i 's/a$/b/' f",
    "printf '%s\\n' \"a b\" c | tee out.txt >/dev/null",
    "time make -j4",
    'echo "$(basename "$(pwd)")"',
    'export A=1 B="$C"; env | grep A',
    "curl -s \"http://x/y?a=1&b=2\" -H 'A: b' -d '{\"a\": 1}' | jq '.a[] | select(.b == \"c\")'",
    "awk -F: '{ print $1, $NF }' /etc/passwd",
    '[[ "$x" =~ ^[0-9]+$ ]] && echo number',
    "git diff HEAD~1 -- src/ | cat  # comment it's",
    "if ! command -v rg >/dev/null 2>&1; then echo missing; fi",
    'python3 -c "import sys; print(sys.version)"',
    'for d in */; do (cd "$d" && git pull); done',
    'COUNT=$(grep -c . f || true); [ "$COUNT" -gt 0 ] && echo "$COUNT"',
    "docker ps --format '{{.Names}}' | xargs -n1 echo",
    "wc -l < f",
    "i=0; while [ $i -lt 3 ]; do i=$((i+1)); done",
    "echo a >&2; echo b 1>&2",
    "mkdir -p a/{b,c}; touch a/b/{1..3}",
]


@pytest.mark.parametrize("line", LINES)
def test_a_rule_about_something_else_does_not_deny_an_everyday_line(line: str) -> None:
    policy = Policy(Mode.BYPASS_PERMISSIONS, deny=parse_rules("bash(zap:*), bash(git push:*)"))
    assert decide(policy, "bash", Executes(line), Path("/work space/project")).reason.startswith("The mode")


@pytest.mark.parametrize("line", LINES)
def test_a_denied_command_behind_an_everyday_line_is_found(line: str) -> None:
    policy = Policy(Mode.BYPASS_PERMISSIONS, deny=parse_rules("bash(zap:*)"))
    for hidden in (f"{line}\nzap", f"zap; {line}", f"if true; then\n{line}\nzap\nfi", f"echo $(\n{line}\nzap\n)"):
        decision = decide(policy, "bash", Executes(hidden), Path("/work space/project"))
        assert decision.verdict is Verdict.DENY
        assert decision.reason == "The rule bash(zap:*) denies this call."
