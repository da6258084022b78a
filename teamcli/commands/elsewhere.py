"""Commands that users of other coding agents know and teamcli does not have, and what to do instead."""

from __future__ import annotations

_CHANGES = "/diff shows what agents have changed, and git restores it: !git restore FILE"
_SETTINGS = "edit ~/.teamcli/settings.json or .team/settings.json; /model and /permissions work right away"
_KEY = "set ANTHROPIC_API_KEY in the environment or in .env; `teamcli doctor` in a shell checks it"
_FILES = "write @PATH in a task to attach a file"
_ASK_LEAD = "ask the lead in your own words"

INSTEAD = {
    "add": _FILES,
    "add-dir": "start with --add-dir DIR",
    "agent": "/team lists the team, /agents the sub-agents",
    "approvals": "/permissions switches the mode; Shift-Tab does, too",
    "bashes": "/jobs lists what runs in the background",
    "ask": "write the question; /permissions plan keeps agents from changing anything",
    "bug": "`teamcli doctor` in a shell collects what a report needs",
    "code": "/permissions acceptEdits lets agents change files without asking",
    "commit": f"{_ASK_LEAD}, or use !git commit -am MESSAGE",
    "config": _SETTINGS,
    "copy": "select the text, or read it in .team/transcripts",
    "doctor": "`teamcli doctor` in a shell checks the setup",
    "drop": "/compact shortens the conversation, /clear starts over",
    "editor": "Ctrl-X Ctrl-E opens the line in your editor",
    "effort": "set `thinking` in the settings",
    "export": "conversations are in .team/transcripts, one JSON object a line",
    "history": "Up and Ctrl-R recall lines, /sessions resumes a conversation, /log shows events",
    "init": "ask the lead to write an AGENTS.md; #TEXT adds one line to it",
    "login": _KEY,
    "logout": _KEY,
    "ls": "!ls",
    "memory": "#TEXT adds a line to the project's instructions",
    "mode": "/permissions switches the mode; Shift-Tab does, too",
    "new": "/clear starts a new session",
    "plan": "/permissions plan keeps agents from changing anything",
    "plugin": "skills and commands of your own are files in .team/skills and .team/commands",
    "reset": "/clear starts a new session",
    "review": f"{_ASK_LEAD}, or hire a teammate as reviewer; /diff shows what agents have changed",
    "rewind": _CHANGES,
    "run": "!COMMAND runs a command",
    "sandbox": "`teamcli doctor` in a shell describes it; the setting is `sandbox`",
    "settings": _SETTINGS,
    "skills": "/help lists them, and each is a command",
    "status": "/team shows who does what, /cost what it cost, /context how full the context is",
    "theme": "colors come from your terminal; NO_COLOR=1 turns them off",
    "todos": "/tasks shows the board; Ctrl-T keeps it in view",
    "tokens": "/context shows how full the context is, /cost what was used",
    "undo": _CHANGES,
    "usage": "/cost",
    "vim": 'set "vi_mode": true in the settings',
}
"""By name. A command, skill or alias that exists comes first."""
