"""What agents know when they start: instructions, roles, skills and what their role has learned."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from teamcli.agent.prompt import (
    LEAD_PROMPT,
    LEAD_TEAM_PROMPT,
    OWN_CHECKOUT,
    SHARED_PLACE,
    TEAMMATE_PROMPT,
    system_prompt,
)
from teamcli.app.choices import Choices
from teamcli.config.descriptions import shortened
from teamcli.config.instructions import find_instructions
from teamcli.config.memory import memory_dirs, offer, users_memory
from teamcli.config.options import Options
from teamcli.config.project import Project
from teamcli.config.roles import Role, Roles, load_roles, role_dirs
from teamcli.config.skills import Skill, Skills, find_skills, skill_dirs
from teamcli.errors import ConfigError, UsageError
from teamcli.llm.pricing import meant_model
from teamcli.team.message import LEAD
from teamcli.team.roster import Member
from teamcli.text.escaping import one_line
from teamcli.text.tags import one_fact
from teamcli.tools.base.context import AgentContext
from teamcli.tools.catalog import LazyTool, ToolDefinition
from teamcli.workspace.bounds import Workspace

WORKS_IN = "You work in {cwd}: your commands start there, and relative paths are relative to it."
ROLES_SHOWN, ROLE_LENGTH, ROLE_NAME_LENGTH = 30, 300, 1000
MORE_ROLES_LENGTH = 1500
"""For the names of roles that are not shown with a description."""


class Briefing:
    """Files are read when they are first needed. `notes` collects what the user should know about them."""

    def __init__(self, choices: Choices, project: Project, options: Options) -> None:
        self._choices = choices
        self._project = project
        self._options = options
        self.notes: list[str] = []

    @cached_property
    def instructions(self) -> list[tuple[str, str]]:
        sources = self._project.sources
        homes = (Path.home() / ".claude", self._project.home) if sources.user else ()
        excludes = self._project.claude.excludes
        instructions = find_instructions(self._choices.workspace.root, homes, excludes, sources.project)
        self.notes += instructions.problems
        return instructions.found

    @cached_property
    def roles(self) -> Roles:
        project = self._project
        plugins = project.plugins().folders("agents")
        folders = role_dirs(project.directory, project.home, project.agreement.covers, plugins)
        counting = project.sources.among(folders, plugins)
        roles = load_roles(counting, project.claude.unused, project.agreement.content_at_start)
        self.notes += roles.problems
        if not self._options.agents:
            return roles
        from teamcli.config.given_roles import read_given_roles  # late: few starts need it

        given = read_given_roles(self._options.agents, project.claude.unused)
        return roles._replace(found=given | roles.found | given)  # first, and instead of any with the same name

    @cached_property
    def skills(self) -> Skills:
        project = self._project
        plugins = project.plugins().folders("skills")
        folders = skill_dirs(project.directory, project.home, project.agreement, plugins)
        skills = find_skills(project.sources.among(folders, plugins))
        self.notes += skills.problems
        return skills

    @cached_property
    def workspace(self) -> Workspace:
        """What all agents may read."""
        return self._choices.workspace._replace(skills=self.skills.folders)

    def lead_system(self, has_team: bool) -> str:
        begins = LEAD_PROMPT if self._options.system_prompt is None else self._options.system_prompt
        begins = self.lead_role.prompt if self.lead_role and self._options.system_prompt is None else begins
        base = "\n\n".join(filter(None, (begins, LEAD_TEAM_PROMPT if has_team else "")))
        extra = (self.skills.offer(), self.memory(LEAD), self._options.append_system_prompt)
        return system_prompt((base + self._known_roles).strip(), self.instructions, *extra)

    @cached_property
    def lead_role(self) -> Role | None:
        """The role that the lead works in, if one was chosen.

        Raises: ConfigError
        """
        wanted = self._options.agent
        if wanted and self.roles.match(wanted) is None:
            known = ", ".join(role.name for role in self.roles.found.values())
            raise ConfigError(f"--agent: there is no role '{wanted}' (there are: {known})")
        return self.roles.match(wanted) if wanted else None

    def teammate_system(
        self, member: Member, tools: tuple[ToolDefinition, ...], memory: str, start: Path | None
    ) -> str:
        """`start` is where it works, if not in the root."""
        name, role = one_fact(member.role, ROLE_NAME_LENGTH), self.roles.match(member.role)
        checkout = OWN_CHECKOUT.format(root=self._choices.workspace.root, branch=f"team/{member.name}")
        place = checkout if member.worktree else SHARED_PLACE
        base = TEAMMATE_PROMPT.format(name=member.name, role=name, place=place) + self._known_roles
        added = (
            self.role_prompt(role) if role else "",
            member.prompt,
            WORKS_IN.format(cwd=start) if start else "",
        )
        skills = self.skills_for(tools, is_in_root=start is None and not member.worktree)
        return system_prompt("\n\n".join(filter(None, (base, *added))), self.instructions, skills, memory)

    def role_prompt(self, role: Role) -> str:
        """The text of a role, followed by the skills that it knows from the start."""
        known = [skill for skill in self.skills.found if skill.name in role.skills] if role.skills else ()
        return "\n\n".join(
            [role.prompt, *(f"The skill {skill.name}, from {skill.shown}:\n{_body(skill)}" for skill in known)]
        )

    def teammate_model(self, wanted: str, role: Role | None) -> str:
        return meant_model(wanted or (role.model if role else ""), self._choices.model)

    def skills_for(self, tools: tuple[ToolDefinition, ...], is_in_root: bool = True) -> str:
        """The skills, for an agent with these tools; empty if it could not read them."""
        return self.skills.offer(is_in_root) if LazyTool("read_file") in tools else ""

    def memory(self, role: str, may_write: bool = True, is_in_root: bool = True) -> str:
        """What the role has learned: the user's own notes, and of the project's those that the user has agreed to.

        An agent that works outside the root needs whole paths.
        """
        root, project = self._choices.workspace.root, self._project
        places = memory_dirs(role, root, project.home, project.agreement.covers, is_in_root)
        return offer(role, places, may_write and project.trusted.config)

    def with_memory(self, context: AgentContext, role: str) -> AgentContext:
        """Let file tools reach the role's memory in the user's home."""
        # Not from an untrusted directory: its files could plant notes that appear in every other project.
        memory = users_memory(self._project.home, role) if self._project.trusted.config else None
        return context._replace(workspace=context.workspace._replace(memory=memory))

    @cached_property
    def _known_roles(self) -> str:
        roles = list(self.roles.found.values())
        lines = [f"- {role.name}: {shortened(role.description, ROLE_LENGTH)}" for role in roles[:ROLES_SHOWN]]
        if more := [role.name for role in roles[ROLES_SHOWN:]]:
            lines.append(f"- {len(more)} more: {one_line(', '.join(more), MORE_ROLES_LENGTH)}")
        return "\n\nRoles for spawn_teammate and agent:\n" + "\n".join(lines) if lines else ""


def _body(skill: Skill) -> str:
    try:
        return skill.body()
    except UsageError as e:  # it was there at the start; the agent should know that it is not now
        return f"({e})"


def identity(member: Member) -> str:
    return f"You are {member.name}, {one_fact(member.role, ROLE_NAME_LENGTH)}, a teammate of the lead."
