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
revoke insert, update, delete on all tables in schema public from teamcli_worker;
grant insert on {inserted} to teamcli_worker;
grant update on {changed} to teamcli_worker;
grant update (host, answer, answer_sig) on {question} to teamcli_worker;
grant delete on {question} to teamcli_worker;
"""
APPENDED = ("message", "transcript", "event")
"""What was said and done. It is never changed."""
CHANGED = ("team", "host", "lease", "inbox", "member", "request", "task", "task_commit", "document")
QUESTION = "question"
"""Only its answer changes, and of a closed one nothing is kept. Whatever else is removed leaves a row that says so."""


def role_script() -> str:
    inserted = ", ".join((*CHANGED, *APPENDED, QUESTION))
    return ROLES.format(inserted=inserted, changed=", ".join(CHANGED), question=QUESTION)
