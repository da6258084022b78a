"""Teams that move between files and a database: nothing is lost, and what comes back is the same, byte for byte."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from teamcli.agent.transcript_sessions import read_marks
from teamcli.errors import StateError, UsageError
from teamcli.storage.team_dir import LeadLock, TeamDir
from teamcli.store.exporting import export_team
from teamcli.store.importing import Import
from teamcli.store.mirror import Mirror
from teamcli.store.postgres.bus import PostgresBus
from teamcli.store.postgres.events import EventRows
from teamcli.store.postgres.leases import Host
from teamcli.store.postgres.newest import Newest
from teamcli.store.postgres.team_rows import Fence
from teamcli.store.postgres.transcripts import TranscriptRows
from teamcli.team.mailbox import Mailbox
from teamcli.team.message import Message, MessageType, new_id
from teamcli.team.message_bus import FileBus
from teamcli.team.roster_file import read_team
from tests.support.file_team import KEY, make_team
from tests.support.postgres import open_test_team

OTHER_KEY = b"the key of another user........."


@pytest.fixture
def team(postgres_url: str) -> Iterator[Any]:
    team = open_test_team(postgres_url)
    yield team
    team.database.close()


def contents(directory: TeamDir) -> dict[str, bytes]:
    """The files of a team, by path."""
    names = ("config.json", "inbox", "transcripts", "tasks", "events.jsonl", "subagents.json", ".inbox-token")
    found = [path for name in names for path in [directory.root / name, *(directory.root / name).rglob("*")]]
    return {str(path.relative_to(directory.root)): path.read_bytes() for path in found if path.is_file()}


def rows(team: Any) -> dict[str, list[Any]]:
    """What the tables say about a team, without versions, epochs, times and signatures."""
    queries = {
        "member": "select name, doc from member where team = %s order by name",
        "request": "select id, doc from request where team = %s order by id",
        "task": "select id, status, owner, doc from task where team = %s order by id",
        "inbox": "select name, tail, incarnation from inbox where team = %s order by name",
        "message": "select inbox, pos, id, regexp_replace(body, '\"sig\":\"[0-9a-f]{40}\"', '') from message"
        " where team = %s order by inbox, pos",
        "transcript": "select agent, incarnation, seq, entry from transcript where team = %s order by 1, 2, 3",
        "event": "select seq, entry from event where team = %s order by host, seq",
        "team": "select last_task, doc from team where id = %s",
    }

    def read(cursor: Any) -> dict[str, list[Any]]:
        found = {}
        for name, query in queries.items():
            cursor.execute(query, (team.id,))
            found[name] = cursor.fetchall()
        return found

    result: dict[str, list[Any]] = team.database.run(read)
    return result


def test_a_team_that_is_imported_and_exported_has_the_same_bytes(team: Any, tmp_path: Path) -> None:
    source = make_team(tmp_path / "one" / ".team")
    before = contents(source)
    Import(team, source, KEY).run()
    target = TeamDir(tmp_path / "two" / ".team")
    export_team(team, target, KEY)
    assert contents(target) == before


def read_back(source: TeamDir, key: bytes = KEY) -> dict[str, list[tuple[str, bool]]]:
    """What each agent has in its inbox, and whether it has read that."""
    bus = FileBus(source.inbox, key)
    found = {}
    for path in sorted(source.inbox.glob("*.jsonl")):
        if not path.name.endswith(".bad.jsonl"):
            mailbox = Mailbox(bus, path.stem, read_marks(source.transcripts / path.name))
            found[path.stem] = [(entry.message.content, entry.is_read) for entry in mailbox.peek()]
    bus.close()
    return found


def test_an_export_by_another_user_keeps_what_is_read_and_what_is_signed(team: Any, tmp_path: Path) -> None:
    source = make_team(tmp_path / "one" / ".team")
    before = read_back(source)
    Import(team, source, KEY).run()
    target = TeamDir(tmp_path / "two" / ".team")
    export_team(team, target, OTHER_KEY)
    assert read_back(target, OTHER_KEY) == before


def test_a_team_that_is_exported_and_imported_has_the_same_rows(team: Any, postgres_url: str, tmp_path: Path) -> None:
    Import(team, make_team(tmp_path / "one" / ".team"), KEY).run()
    target = TeamDir(tmp_path / "two" / ".team")
    export_team(team, target, KEY)
    again = open_test_team(postgres_url)
    Import(again, target, KEY).run()
    found = rows(again)
    again.database.close()
    assert found == rows(team)


LINES = st.one_of(
    st.binary(max_size=40).map(lambda data: data.replace(b"\n", b"")),
    st.text(max_size=20).map(lambda text: text.encode("utf-8", "replace").replace(b"\n", b"")),
    st.sampled_from(
        [b"", b" ", b"{}", b'{"ts":1e400}', b'{"marks":{"inbox":{"offset":3}}}', b'{"type":"message"', b"\r"]
    ),
    st.dictionaries(st.sampled_from(["ts", "type", "content", "from", "id", "sig", "kind"]), st.text(max_size=9)).map(
        lambda value: json.dumps(value).encode()
    ),
)
LOGS = st.tuples(st.lists(LINES, max_size=6), st.booleans()).map(
    lambda made: b"\n".join(made[0]) + (b"" if made[1] or not made[0] else b"\n")
)
DOCUMENTS = st.one_of(
    st.binary(max_size=40),
    st.sampled_from(
        [b"", b"{}", b'{"v": 1, "members": [{"name": "alice", "role": "x", "status": "idle"}, 7]}', b'{"id":3}']
    ),
    st.builds(lambda subject: json.dumps({"id": 3, "subject": subject, "x": "\ud800"}, indent=1).encode(), st.text()),
)
NAMES = {
    "inbox/lead.jsonl": LOGS,
    "inbox/alice.jsonl": LOGS,
    "inbox/archive/alice.1.jsonl": LOGS,
    "inbox/archive/alice.12.jsonl": LOGS,
    "inbox/alice.bad.jsonl": LOGS,
    "transcripts/lead.jsonl": LOGS,
    "transcripts/alice.jsonl": LOGS,
    "transcripts/archive/alice.2.jsonl": LOGS,
    "transcripts/archive/bob.1763481234000000000.jsonl": LOGS,
    "transcripts/subagents/a1b2.jsonl": LOGS,
    "events.jsonl": LOGS,
    "config.json": DOCUMENTS,
    "subagents.json": DOCUMENTS,
    "tasks/3.json": DOCUMENTS,
    "tasks/4.json": DOCUMENTS,
    "tasks/4.bad.json": DOCUMENTS,
    "tasks/.lock": st.sampled_from([b"7 3 0".ljust(63) + b"\n", b"junk", b"9" * 40]),
}


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(files=st.fixed_dictionaries({}, optional=NAMES))
def test_whatever_the_files_hold_an_export_gives_the_same_bytes(
    postgres_url: str, tmp_path: Path, files: dict[str, bytes]
) -> None:
    place = tmp_path / secrets.token_hex(8)
    source, target = TeamDir(place / "one"), TeamDir(place / "two")
    for name, data in files.items():
        path = source.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    source.root.mkdir(parents=True, exist_ok=True)
    team = open_test_team(postgres_url)
    try:
        importing = Import(team, source, KEY)
        before = contents(source)
        importing.run()
        export_team(team, target, KEY)
    finally:
        team.database.close()
    after = contents(target)
    del after[".inbox-token"]
    # An archive may be recorded first, as the next start would do it.
    assert {name: after.get(name) for name in before} == before


def test_after_an_import_the_files_are_aside_and_the_directory_has_no_team(team: Any, tmp_path: Path) -> None:
    source = make_team(tmp_path / ".team")
    before = contents(source)
    aside = Import(team, source, KEY).run()
    assert (contents(TeamDir(aside)), source.has_state) == (before, False)


def test_an_import_that_was_cut_off_before_its_files_moved_is_completed(
    team: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = make_team(tmp_path / ".team")

    def fail(self: Import) -> Path:
        raise StateError("the power fails")

    with monkeypatch.context() as patched:
        patched.setattr(Import, "_move_aside", fail)
        with pytest.raises(StateError):
            Import(team, source, KEY).run()
    found = rows(team)
    Import(team, source, KEY).run()
    assert (rows(team), source.has_state) == (found, False)


@pytest.mark.parametrize(
    "name", ["events.jsonl", "inbox/bob.jsonl", "inbox/x.txt", "transcripts", "tasks/9.json", "config.json.bad-1"]
)
def test_a_link_is_not_imported(team: Any, tmp_path: Path, name: str) -> None:
    source = make_team(tmp_path / "one" / ".team")
    link, outside = source.root / name, tmp_path / "outside"
    if link.exists():
        link.rename(outside)
    else:
        outside.write_text("secret\n")
    link.symlink_to(outside)
    with pytest.raises(StateError, match="symbolic link"):
        Import(team, source, KEY).run()


def spoil(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def raise_incarnation(source: TeamDir) -> None:
    (member,) = json.loads(source.config.read_text())["members"]
    spoil(source.config, members=[{**member, "incarnation": 1 << 31}])


@pytest.mark.parametrize(
    ("name", "act"),
    [
        ("tasks/1.json", lambda source: spoil(source.tasks / "1.json", owner="a\0b")),
        ("tasks/1.json", lambda source: spoil(source.tasks / "1.json", owner="a\ud800b")),
        ("inbox/alice.state.json", lambda source: spoil(source.inbox / "alice.state.json", incarnation=1 << 31)),
        ("config.json", raise_incarnation),
    ],
)
def test_what_no_row_can_hold_is_refused_with_the_name_of_the_file(
    team: Any, tmp_path: Path, name: str, act: Callable[[TeamDir], None]
) -> None:
    source = make_team(tmp_path / ".team")
    act(source)
    before = contents(source)
    with pytest.raises(StateError) as refused:
        Import(team, source, KEY).run()
    assert f"{source.root / name}" in str(refused.value)
    assert contents(source) == before
    assert rows(team)["member"] == []


def test_files_that_teamcli_gives_no_such_names_are_named_and_stay_behind(team: Any, tmp_path: Path) -> None:
    source = make_team(tmp_path / ".team")
    odd = source.transcripts / "al ice.jsonl"
    odd.write_text('{"kind":"joined"}\n')
    warnings: list[str] = []
    aside = Import(team, source, KEY, warn=warnings.append).run()
    assert warnings == [
        f"not imported, since teamcli gives no file such a name: transcripts/al ice.jsonl; look in {aside}"
    ]
    assert (aside / "transcripts" / "al ice.jsonl").exists()


def test_an_unsigned_field_of_the_roster_takes_the_place_of_none_that_teamcli_writes(team: Any, tmp_path: Path) -> None:
    Import(team, make_team(tmp_path / "one" / ".team"), KEY).run()
    doc = json.dumps({"v": 99, "members": [], "requests": 5, "team_name": "x", "mine": 1})
    team.database.run(lambda cursor: cursor.execute("update team set doc = %s where id = %s", (doc, team.id)))
    target = TeamDir(tmp_path / "two" / ".team")
    export_team(team, target, KEY)
    found = read_team(target.config)
    assert [member.name for member in found.members] == ["alice"]
    assert (found.name, found.unknown) == ("x", {"mine": 1})


def test_a_team_that_is_not_empty_is_not_imported_into(team: Any, tmp_path: Path) -> None:
    Import(team, make_team(tmp_path / "one" / ".team"), KEY).run()
    second = make_team(tmp_path / "two" / ".team")
    with pytest.raises(StateError, match="--team NAME"):
        Import(team, second, KEY).run()
    assert second.has_state


def test_a_directory_in_which_teamcli_runs_is_not_imported(team: Any, tmp_path: Path) -> None:
    source = make_team(tmp_path / ".team")
    lock = LeadLock.take(source.lock)
    with pytest.raises(StateError, match="stop it"):
        Import(team, source, KEY).run()
    assert lock is not None
    lock.release()


def test_a_directory_with_a_team_is_not_overwritten_unless_forced(team: Any, tmp_path: Path) -> None:
    Import(team, make_team(tmp_path / "one" / ".team"), KEY).run()
    target = make_team(tmp_path / "two" / ".team")
    before = contents(target)
    with pytest.raises(UsageError, match="--force"):
        export_team(team, target, KEY)
    assert contents(target) == before


def test_a_forced_export_moves_the_team_aside_that_was_there(team: Any, tmp_path: Path) -> None:
    Import(team, make_team(tmp_path / "one" / ".team"), KEY).run()
    target = make_team(tmp_path / "two" / ".team")
    before = contents(target)
    aside = export_team(team, target, KEY, is_forced=True)
    assert aside is not None
    assert contents(TeamDir(aside)) == before


@pytest.mark.parametrize(
    "name", ["file:../outside", "file:inbox/../../outside", "file:settings.json", "file:/etc/outside", "file:inbox/a/b"]
)
def test_no_document_leads_out_of_the_files_of_a_team(team: Any, tmp_path: Path, name: str) -> None:
    def put(cursor: Any) -> None:
        cursor.execute(
            "insert into document (team, name, body, sig) values (%s, %s, 'x', %s)",
            (team.id, name, team.sign("document", name, "x")),
        )

    team.database.run(put)
    target = TeamDir(tmp_path / "in" / ".team")
    export_team(team, target, KEY)
    found = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert found == {".gitignore", ".inbox-token", "lead.lock"}


FORGED = {
    "member": "insert into member (team, name, doc, sig) values (%s, 'eve', "
    '\'{"name":"eve","role":"x","status":"idle"}\', \'forged\')',
    "task": "insert into task (team, id, status, doc, sig) values (%s, 9, 'pending', '{\"id\":9}', 'forged')",
    "transcript": "insert into transcript (team, agent, incarnation, seq, epoch, entry, sig)"
    " values (%s, 'lead', 0, 5, 0, '{}', 'forged')",
    "document": "insert into document (team, name, body, sig) values (%s, 'file:subagents.json', '{}', 'forged')",
}


@pytest.mark.parametrize("table", FORGED)
def test_a_forged_row_is_left_out(team: Any, tmp_path: Path, table: str) -> None:
    source = make_team(tmp_path / "one" / ".team")
    before = contents(source)
    Import(team, source, KEY).run()
    team.database.run(lambda cursor: cursor.execute(FORGED[table], (team.id,)))
    warnings: list[str] = []
    target = TeamDir(tmp_path / "two" / ".team")
    export_team(team, target, KEY, warn=warnings.append)
    assert contents(target) == before
    assert [table in warning for warning in warnings] == [True] * (table != "document")


def test_names_of_agents_in_the_database_lead_nowhere(team: Any, tmp_path: Path) -> None:
    def put(cursor: Any) -> None:
        cursor.execute("insert into inbox (team, name, tail) values (%s, '../../outside', 3)", (team.id,))
        cursor.execute(
            "insert into message (team, inbox, pos, id, body) values (%s, '../../outside', 0, 'x', 'xx')", (team.id,)
        )
        signature = team.sign("transcript", "../../outside", 1, 0, 0, "{}")
        cursor.execute(
            "insert into transcript (team, agent, incarnation, seq, epoch, entry, sig)"
            " values (%s, '../../outside', 1, 0, 0, '{}', %s)",
            (team.id, signature),
        )

    team.database.run(put)
    export_team(team, TeamDir(tmp_path / "in" / ".team"), KEY)
    assert not [path for path in tmp_path.rglob("*") if "outside" in path.name]


def in_database(team: Any, directory: Path) -> tuple[PostgresBus, Mirror]:
    mirror = Mirror(team, TeamDir(directory))
    mirror.bring_roster()
    return PostgresBus(team, Fence(team), Newest(), directory), mirror


def test_an_agent_has_the_same_unread_mail_in_the_database_as_in_files(team: Any, tmp_path: Path) -> None:
    source = make_team(tmp_path / "one" / ".team")
    before = {name: [text for text, is_read in mail if not is_read] for name, mail in read_back(source).items()}
    Import(team, source, KEY).run()
    bus, mirror = in_database(team, tmp_path / "mirror")
    mailboxes = {name: Mailbox(bus, name, mirror.marks_of(name)) for name in before}
    assert {name: [message.content for message in box.look()] for name, box in mailboxes.items()} == before


def test_mail_that_was_sent_before_the_import_is_not_sent_again(team: Any, tmp_path: Path) -> None:
    source = make_team(tmp_path / "one" / ".team")
    archived = (source.inbox / "archive" / "alice.1.jsonl").read_bytes().splitlines()
    lines = [*archived, *(source.inbox / "alice.jsonl").read_bytes().splitlines()]
    Import(team, source, KEY).run()
    bus, _ = in_database(team, tmp_path / "mirror")
    again = [Message(MessageType.MESSAGE, "x", "alice", "again", 1.0, json.loads(line)["id"]) for line in lines]
    assert [bus.send_once(message) for message in again] == [False] * 4


def test_what_was_read_and_sent_in_the_database_is_so_in_exported_files(team: Any, tmp_path: Path) -> None:
    Import(team, make_team(tmp_path / "one" / ".team"), KEY).run()
    bus, mirror = in_database(team, tmp_path / "mirror")
    for text in ("one", "two"):
        bus.send(Message(MessageType.MESSAGE, "lead", "alice", text, 4.0, new_id()))
    fence = Fence(team)
    host = Host(team, "here", 1, fence)
    host.join()
    assert host.take("alice")
    log = TranscriptRows(team, fence, Newest(), "alice", 2, tmp_path / "alice.jsonl")
    log.append(
        {"kind": "user", "content": "y", "marks": dict(Mailbox(bus, "alice", mirror.marks_of("alice")).take().marks)}
    )
    log.close()
    bus.send(Message(MessageType.MESSAGE, "lead", "alice", "three", 5.0, new_id()))
    target = TeamDir(tmp_path / "two" / ".team")
    export_team(team, target, KEY)
    assert read_back(target)["alice"] == [("more", True), ("one", True), ("two", True), ("three", False)]


def test_a_mirror_brings_only_what_is_new_and_ends_with_the_same_files(team: Any, tmp_path: Path) -> None:
    Import(team, make_team(tmp_path / "one" / ".team"), KEY).run()
    mirror = Mirror(team, TeamDir(tmp_path / "mirror"))
    bus, _ = in_database(team, tmp_path / "other")
    mirror.bring_all()
    bus.send(Message(MessageType.MESSAGE, "lead", "bob", "new", 4.0, new_id()))
    events = EventRows(team, Newest(), "here", tmp_path / "events")
    events.append({"ts": 9.0, "event": "new"})
    events.close()
    mirror.bring_all()
    fresh = Mirror(team, TeamDir(tmp_path / "fresh"))
    fresh.bring_all()
    assert contents(TeamDir(tmp_path / "mirror")) == contents(TeamDir(tmp_path / "fresh"))


def test_events_of_several_hosts_are_exported_in_the_order_of_their_time(team: Any, tmp_path: Path) -> None:
    for host, times in {"a": (1.0, 4.0, 3.0), "b": (2.0, 5.0)}.items():
        log = EventRows(team, Newest(), host, tmp_path / host)
        log.append(*({"ts": ts, "host": host} for ts in times))
        log.close()
    target = TeamDir(tmp_path / "two" / ".team")
    export_team(team, target, KEY)
    found = [json.loads(line) for line in target.events.read_text().splitlines()]
    assert [(each["host"], each["ts"]) for each in found] == [
        ("a", 1.0),
        ("b", 2.0),
        ("a", 4.0),
        ("a", 3.0),
        ("b", 5.0),
    ]


def test_a_conversation_that_was_begun_anew_moves_to_the_archive_of_a_mirror(team: Any, tmp_path: Path) -> None:
    source = make_team(tmp_path / "one" / ".team")
    first = (source.transcripts / "alice.jsonl").read_bytes()
    Import(team, source, KEY).run()
    directory = TeamDir(tmp_path / "mirror")
    mirror = Mirror(team, directory)
    mirror.bring_all()
    member = mirror.roster.members[0]._replace(incarnation=3)

    def begin_anew(cursor: Any) -> None:
        doc, entry = member.encoded, '{"kind":"joined"}'
        cursor.execute("update member set doc = %s, sig = %s", (doc, team.sign("member", "alice", 1, doc)))
        cursor.execute(
            "insert into transcript (team, agent, incarnation, seq, epoch, entry, sig)"
            " values (%s, 'alice', 3, 0, 0, %s, %s)",
            (team.id, entry, team.sign("transcript", "alice", 3, 0, 0, entry)),
        )

    team.database.run(begin_anew)
    mirror.bring_all()
    assert (directory.transcripts / "archive" / "alice.2.jsonl").read_bytes() == first
    assert (directory.transcripts / "alice.jsonl").read_text() == '{"kind":"joined"}\n'
