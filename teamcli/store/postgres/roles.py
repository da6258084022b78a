"""Roles with the least rights: one that migrates, one that works, one that only looks."""

from __future__ import annotations

ROLES = """\
-- Roles of a teamcli database. Run it as its owner, after teamcli store migrate:
--   teamcli store roles | psql 'postgresql://OWNER@HOST/DATABASE'
-- The owner migrates and deletes teams. Hosts of a team log in as members of teamcli_worker, people who only look as
-- members of teamcli_viewer:
--   create role alice login in role teamcli_worker;
do $$
begin
    if not exists (select from pg_roles where rolname = 'teamcli_worker') then
        create role teamcli_worker nologin;
    end if;
    if not exists (select from pg_roles where rolname = 'teamcli_viewer') then
        create role teamcli_viewer nologin;
    end if;
end
$$;
revoke create on schema public from public;
grant usage on schema public to teamcli_worker, teamcli_viewer;
grant select on all tables in schema public to teamcli_worker, teamcli_viewer;
grant insert, update on all tables in schema public to teamcli_worker;
grant delete on {deleted} to teamcli_worker;
revoke insert, update on meta from teamcli_worker;
"""
DELETED = ("member", "request")
"""The tables whose rows a team removes in its work. Messages, conversations and leases are never deleted."""


def role_script() -> str:
    return ROLES.format(deleted=", ".join(DELETED))
