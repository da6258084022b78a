"""Whether a member waits for a free slot: each host that would run it is full."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from teamcli.team.host_row import HostRow
from teamcli.team.roster_file import ANY_HOST, Member
from teamcli.text.escaping import one_line


def why_no_room(member: Member, members: Iterable[Member], hosts: Sequence[HostRow], holders: Mapping[str, str]) -> str:
    """Why no host takes a member that none runs; empty if one will, or if none is there. `holders` are the living hosts
    of members."""
    if not member.host or not member.is_active or member.name in holders:
        return ""
    there = [host for host in hosts if host.is_alive and not host.is_leaving]
    named = [host for host in there if host.name == member.host]
    is_for_any = member.host == ANY_HOST or (bool(member.runs_on) and not named)
    # As `Hosting` counts: those that have no host of their own run with the lead, and take no slot.
    used = Counter(holders.get(each.name) for each in members if each.host and each.is_active)
    wanted = there if is_for_any else named
    if not wanted or any(used[host.name] < host.slots for host in wanted):
        return ""
    if len(wanted) > 1:
        return "all hosts are full"
    (host,) = wanted
    return f"the host {one_line(host.name, 64)} is full ({min(used[host.name], host.slots)} of {host.slots})"
