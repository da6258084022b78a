"""Tables for the sandbox: what is closed to commands, guarded, kept apart, and removed from their environment."""

from __future__ import annotations

from typing import NamedTuple


def _words(table: str) -> tuple[str, ...]:
    """The words of a table. A line that begins with # is a comment."""
    return tuple(word for line in table.splitlines() if not line.lstrip().startswith("#") for word in line.split())


CLOSED_IN_HOME = _words("""
    # keys and passwords
    .ssh .gnupg .password-store .local/share/keyrings .local/share/kwalletd .netrc _netrc .git-credentials
    .config/git/credentials .pgpass .my.cnf .mylogin.cnf .vault-token .age .config/sops .config/op
    .config/Bitwarden .config/1Password .1password .Xauthority
    # clouds and clusters
    .aws .azure .config/gcloud .boto .s3cfg .kube .docker .config/containers/auth.json .terraform.d
    .terraformrc .oci .fly .config/doctl .config/rclone .config/heroku
    # registries and forges
    .pypirc .config/pip/pip.conf .pip/pip.conf .npmrc .yarnrc.yml .cargo/credentials .cargo/credentials.toml
    .gem/credentials .m2/settings.xml .m2/settings-security.xml .nuget/NuGet .config/gh .config/glab-cli
    .config/hub
    # agents
    .teamcli .claude .claude.json .codex .gemini .config/github-copilot .local/share/opencode .huggingface
    # history of what was typed
    .bash_history .local/state/bash .zsh_history .zhistory .histfile .history .sh_history .ash_history
    .ksh_history .zsh_sessions .local/share/zsh .local/state/zsh .local/share/fish .config/nushell/history.txt
    .config/nushell/history.sqlite3 .local/share/nushell .local/share/xonsh .xonsh_history .local/state/elvish
    .local/share/atuin .local/share/mcfly .python_history .ipython .local/share/ipython .ptpython
    .local/share/ptpython .local/share/jupyter/runtime .node_repl_history .irb_history .irb-history
    .local/share/irb .pry_history .local/share/pry .php_history .Rhistory .julia/logs .octave_hist
    .ghc/ghci_history .local/share/ghc .scala_history .psql_history .local/state/psql .config/pgcli
    .mysql_history .mariadb_history .mycli-history .sqlite_history .duckdb_history .rediscli_history .dbshell
    .mongodb .lesshst .local/state/less .local/state/lesshst .viminfo .local/state/nvim
    # browsers, mail and chat
    .mozilla .config/mozilla .librewolf .waterfox .floorp .zen .thunderbird .config/google-chrome
    .config/google-chrome-beta .config/google-chrome-unstable .config/chromium .config/BraveSoftware
    .config/microsoft-edge .config/microsoft-edge-beta .config/microsoft-edge-dev .config/vivaldi
    .config/vivaldi-snapshot .config/opera .config/opera-beta .config/opera-developer .config/yandex-browser
    .config/qutebrowser .local/share/qutebrowser .config/falkon .config/epiphany .local/share/epiphany
    .var/app snap .config/Signal .config/Slack .config/discord .config/Element .config/evolution
    .local/share/evolution .local/share/TelegramDesktop
""")
HISTORY_VARIABLES = _words("""
    HISTFILE LESSHISTFILE PYTHON_HISTORY NODE_REPL_HISTORY PSQL_HISTORY MYSQL_HISTFILE SQLITE_HISTORY
    REDISCLI_HISTFILE
""")
"""Each names a file with the history of what was typed."""
CLOSED_WITH_A_SECRET = frozenset({".config/pip/pip.conf", ".pip/pip.conf", ".npmrc", ".yarnrc.yml", ".m2/settings.xml"})
"""Most hold only settings that tools need, so they are closed only if they look as if they held a secret."""
SECRET_LOOK = rb"(?i)_auth|_password|authtoken|<password>|://[^/\s:@]+:[^/\s@]+@"
CLOSED_IN_SYSTEM = ("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/ssl/private")
"""Only root can read them anyway."""
HOST_KEYS = "ssh_host_*_key"

STARTUP_FILES = _words("""
    .bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .zshrc .zshenv .zprofile .zlogin .zlogout
    .inputrc .tmux.conf .vimrc .gitconfig .config/git .config/fish .config/nvim .config/autostart .config/systemd
    .config/environment.d .local/bin .cargo/bin .cargo/env .pyenv .nvm bin
""")
"""Guarded if the workspace contains the home directory. Otherwise all of the home directory is read-only."""


class Cache(NamedTuple):
    """Where a tool keeps what it can make or download again. Commands get a separate one for each project."""

    directory: str
    """In the home directory."""
    variable: str = ""
    """The environment variable that names another directory."""
    parts: tuple[str, ...] = ()
    """The subdirectories that are caches, if not all of it is one."""

    def replacement(self, part: str = "") -> str:
        """The name of the directory that replaces it, or a part of it.

        None is inside another: a command could put a link there, and the next run would open what it leads to.
        """
        return f"{self.directory}/{part}".strip("./").replace("/", "-")


CACHES = (
    Cache(".cache", "XDG_CACHE_HOME"),
    Cache(".npm", "npm_config_cache"),
    Cache(".cargo", "CARGO_HOME", ("registry", "git")),
    Cache("go/pkg/mod", "GOMODCACHE"),
    Cache(".gradle", "GRADLE_USER_HOME"),
    Cache(".m2/repository"),
    Cache(".ivy2/cache"),
    Cache(".local/share/pnpm", "PNPM_HOME", ("store",)),
    Cache(".yarn/berry", "YARN_GLOBAL_FOLDER"),
    Cache(".bun/install/cache", "BUN_INSTALL_CACHE_DIR"),
    Cache(".nuget/packages", "NUGET_PACKAGES"),
)

OUTSIDE_SOCKETS = _words("""
    SSH_AUTH_SOCK SSH_AGENT_PID GPG_AGENT_INFO DBUS_SESSION_BUS_ADDRESS DBUS_SYSTEM_BUS_ADDRESS XDG_RUNTIME_DIR
    DOCKER_HOST CONTAINER_HOST DISPLAY XAUTHORITY WAYLAND_DISPLAY TMUX TMUX_PANE STY VSCODE_IPC_HOOK_CLI
    VSCODE_GIT_IPC_HANDLE GIT_ASKPASS SSH_ASKPASS GNOME_KEYRING_CONTROL WSL_INTEROP
""")
"""Variables that lead to a socket outside the sandbox. A command that used them would only fail."""

KEPT_CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "SETGID", "SETUID")
"""What root needs to work with files of others. Mounts, devices, other processes and the network stay closed."""

CLAUDE_DIR = ".claude"
"""In a project: roles, commands and skills that agents obey, and hooks of another agent."""
HOLDS_SKILLS, SKILLS = (".teamcli", CLAUDE_DIR), "skills"
"""Closed directories of which one part can be read."""
NODE_MODULES = "node_modules"
PROJECT_FILES = _words("""
    package.json pyproject.toml setup.py requirements.txt pyvenv.cfg Cargo.toml go.mod Gemfile deno.json .git
""")
"""Each is at the top of a project, or of what was installed."""
