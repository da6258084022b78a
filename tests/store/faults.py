"""A team on several hosts that talks, claims tasks and merges, and everything that can go wrong under it.

What the model says depends on the conversation only, so that any restart continues. The harness asserts nothing: what
does not hold is in `Field.problems`. An outage ends when something has happened, not after a time.
"""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.store.machines import BYPASS, Machines, Worker
from tests.support.answers import answer, delay, text, tool
from tests.support.fake_api import FakeAPI
from tests.support.postgres import Server
from tests.support.proxy import Proxy
from tests.support.team_script import agent_of
from tests.support.waiting import wait_until
from tests.worktrees.conftest import git

MEMBERS = ("alice", "bob", "carol")
HOSTS = ("one", "two", "three")
LEASE_SECONDS = 2.0
TAKEOVER_SECONDS = LEASE_SECONDS + 15.0
"""The promise is 45 s with a lease of 30 s: what comes after the lease does not get shorter with it."""
TASKS = 8
"""In each round."""
FRAME = re.compile(r'type="task"[^>]* task="(\d+)"')
AWAY, BACK = "The database cannot be reached", "The database is back."
MOVED = "<note>You run on the host "
AUDIT = """
    create table if not exists written (agent text, incarnation int, seq bigint, epoch bigint, program text, host text);
    truncate written;
    create or replace function note_writer() returns trigger language plpgsql as $$ begin
        insert into written values (new.agent, new.incarnation, new.seq, new.epoch, current_setting('application_name'),
            (select host from lease where team = new.team and name = new.agent and epoch = new.epoch));
        return new;
    end $$;
    drop trigger if exists note_writer on transcript;
    create trigger note_writer after insert on transcript for each row execute function note_writer();
"""
"""Which process has inserted each line of a transcript, and which host had the lease of that epoch."""


def work(request: dict[str, Any], n: int) -> Any:
    name, history = agent_of(request), json.dumps(request["messages"]).replace('\\"', '"')
    return answer(lead(history) if name == "lead" else member(name, history), delay(0.1))


def lead(history: str) -> Any:
    for name in MEMBERS:
        if f"Spawned '{name}'" not in history and f"Error: '{name}' is" not in history:
            return tool("spawn_teammate", name=name, role="coder", prompt="take tasks", host="any", claims=True)
    rounds = max(map(int, re.findall(r"ROUND (\d+)", history)))
    created = len(re.findall(r"Created task (\d+)", history))
    if created < TASKS * rounds:
        return tool("task_create", subject=f"task {created}")
    for name in MEMBERS:
        reported = history.rfind(f'from="{name}" type="result"')
        merged = max(history.rfind(f"Merged team/{name} "), history.rfind(f"has everything of team/{name}."))
        if reported > merged:
            return tool("merge_teammate", name=name)
    return text("fine")


def member(name: str, history: str) -> Any:
    given = list(dict.fromkeys(FRAME.findall(history)))
    here = history[max(history.rfind(MOVED), 0) :]
    over = history.count("(completed, owner") + history.count("Error: already completed")
    for id in given[: over + 1]:  # what was not pushed is gone with its host
        if f"committed {id}." not in here:
            return tool("bash", command=commit(name, id))
    if over == len(given):
        return text("done")
    id = given[over]
    if f"Task {id} is mine" not in history:
        friend = MEMBERS[(MEMBERS.index(name) + 1) % len(MEMBERS)]
        return tool("send_message", to=friend, content=f"Task {id} is mine")
    return tool("task_update", id=int(id), status="completed")


def commit(name: str, id: str) -> str:
    """May be repeated: a kill can come after the commit and before its result."""
    is_done = f"git log --format=%s | grep -qx 'Task {id}'"
    do_it = f"echo {name} > {id}.txt && git add -A && git commit -qm 'Task {id}'"
    return f"rm -f .git/*.lock; {is_done} || {{ {do_it}; }} && echo co''mmitted {id}."


class Field:
    """The lead and its workers, each with a network of its own to the database."""

    def __init__(self, base: Path, server: Server, api: FakeAPI) -> None:
        import psycopg

        self.server = server
        self.api = api
        self.machines = Machines(base, server.url("migrated"), LEASE_SECONDS)
        with psycopg.connect(server.url("migrated")) as connection:
            connection.execute(AUDIT)
        self.machines.lead.url = api.url
        socket = base_of(server)
        self.proxies = {name: Proxy(socket) for name in ("lead", *HOSTS)}
        self.starts = Counter[str]()
        self.workers = {name: self.start_worker(name) for name in HOSTS}
        self.lead_process: subprocess.Popen[bytes] | None = None
        self.round = 0
        self.faults: list[str] = []
        self.problems: list[str] = []
        """What did not hold, each in a sentence."""

    def url(self, name: str) -> str:
        self.starts[name] += 1
        return f"{self.proxies[name].url('migrated')}?application_name={name}-{self.starts[name]}"

    def start_worker(self, name: str) -> Worker:
        return self.machines.worker(name, variables={"TEAMCLI_STORE": self.url(name)})

    def start_lead(self) -> None:
        program = self.machines.lead
        program.variables["TEAMCLI_STORE"] = self.url("lead")
        log = (self.machines.base / f"lead-{self.starts['lead']}.log").open("wb")
        line = ("-p", f"ROUND {self.round}", "--continue", *BYPASS)
        self.lead_process = program.start(*line, stdout=log, stderr=log)
        log.close()

    def play(self, faults: list[str], chance: random.Random) -> None:
        """One round of work, to its end, with the first of these faults, which are taken from the list."""
        self.round += 1
        self.start_lead()
        self.wait_for_requests(1 + chance.randrange(8))
        while faults and not self.is_over:
            self.cause(faults.pop(0), chance)
            self.wait_for_requests(1 + chance.randrange(8))
        self.finish()
        self.check()

    def wait_for_requests(self, count: int) -> None:
        wanted = len(self.api.exchanges) + count
        wait_until(lambda: len(self.api.exchanges) >= wanted or self.is_over, 120)

    @property
    def is_over(self) -> bool:
        return self.lead_process is None or self.lead_process.poll() is not None

    def finish(self) -> None:
        while True:
            try:
                code = self.lead_process.wait(120) if self.lead_process else 0
            except subprocess.TimeoutExpired:
                raise RuntimeError(f"the run does not end: {self.state()}") from None
            if code == 0:
                return
            # Only at the start, a database that is away is an error.
            log = self.machines.base / f"lead-{self.starts['lead']}.log"
            if not log.read_text().startswith("teamcli: the database cannot be reached"):
                raise RuntimeError(f"the lead ended with {code}: {self.state()}")
            self.start_lead()

    def cause(self, fault: str, chance: random.Random) -> None:
        kind, _, name = fault.partition(" ")
        self.faults.append(fault)
        getattr(self, kind)(name, chance)

    # Faults

    def kill(self, name: str, chance: random.Random) -> None:
        self.workers[name].kill()
        if chance.random() < 0.5:
            self.wait_for_takeover(name)
        self.workers[name] = self.start_worker(name)

    def kill_lead(self, name: str, chance: random.Random) -> None:
        if self.lead_process is not None:
            self.lead_process.kill()
            self.lead_process.wait()
        self.start_lead()

    def crash(self, name: str, chance: random.Random) -> None:
        """At once over; until every worker has noticed it; or so long that all leases have run out meanwhile."""
        how = chance.choice(("at once", "noticed", "expired"))
        workers = [worker for worker in self.workers.values() if worker.process.poll() is None]
        self.server.stop(signal.SIGQUIT)
        if how == "noticed":  # by some maybe in an outage before, which goes on for them
            wait_until(lambda: all(each.count(AWAY) > each.count(BACK) for each in workers) or self.is_over)
        self.server.start()
        if how == "expired":
            self.machines.rows("update host set expires_at = least(expires_at, clock_timestamp()) returning 1")

    def cut(self, name: str, chance: random.Random) -> None:
        self.interrupt(name, self.proxies[name].cut, chance)

    def stall(self, name: str, chance: random.Random) -> None:
        self.interrupt(name, self.proxies[name].stall, chance)

    def interrupt(self, name: str, act: Any, chance: random.Random) -> None:
        act()
        if name != "lead" and chance.random() < 0.7:
            self.wait_for_takeover(name)
        elif chance.random() < 0.5:
            self.wait_until_expired(name)
        self.proxies[name].restore()

    def freeze(self, name: str, chance: random.Random) -> None:
        self.workers[name].freeze()
        self.wait_until_expired(name)
        self.wait_for_takeover(name)
        self.workers[name].process.send_signal(signal.SIGCONT)

    def drain(self, name: str, chance: random.Random) -> None:
        worker = self.workers[name]
        worker.process.send_signal(signal.SIGTERM)
        code = worker.process.wait(60)
        worker.join()
        self.note(code == 0, f"a worker that was told to leave ended with {code}: {worker.lines}")
        self.workers[name] = self.start_worker(name)

    def wait_for_takeover(self, name: str) -> None:
        """Of all members that this host runs. Its lease has to run out first."""
        began = time.monotonic()
        if self.is_over:
            return
        query = f"select count(*) from lease l where host = '{name}' and l.name = any(array{list(MEMBERS)})"
        wait_until(lambda: self.machines.rows(query) == [(0,)] or self.is_over, 2 * TAKEOVER_SECONDS, 0.05)
        took = time.monotonic() - began
        self.note(took <= TAKEOVER_SECONDS, f"a takeover took {took:.1f} s")

    def wait_until_expired(self, name: str) -> None:
        """Until the lease of a host has run out, as the database sees it."""
        host = "%-lead" if name == "lead" else name
        query = f"select count(*) from host where name like '{host}' and expires_at > clock_timestamp()"
        wait_until(lambda: self.machines.rows(query) == [(0,)] or self.is_over, TAKEOVER_SECONDS, 0.05)

    # What must hold

    def note(self, holds: object, problem: str) -> None:
        if not holds:
            self.problems.append(f"{problem}, after {self.faults}")

    def check(self) -> None:
        self.check_mail()
        self.check_tasks()
        self.check_writers()
        self.check_repository()
        self.note(not self.api.breaches, f"requests were refused: {self.api.breaches}")

    def check_mail(self) -> None:
        read: dict[str, Counter[str]] = {name: Counter() for name in ("lead", *MEMBERS)}
        for agent, entry in self.machines.rows("select agent, entry from transcript"):
            marks = json.loads(entry).get("marks") or {}
            read[agent].update(marks.get("mail") or ())
        sent = self.machines.rows("select inbox, id, body from message where inbox not like '%/orders'")
        wrong = [(inbox, read[inbox][id], body) for inbox, id, body in sent if read[inbox][id] != 1]
        self.note(not wrong, f"messages were not read once: {wrong}")

    def check_tasks(self) -> None:
        tasks = [json.loads(doc) for (doc,) in self.machines.rows("select doc from task")]
        self.note(len(tasks) >= TASKS * self.round, f"tasks are missing: {tasks}")
        wrong = [task for task in tasks if task["status"] != "completed" or task["assigned"] != 1]
        self.note(not wrong, f"tasks were not done once: {wrong}")
        done = Counter[str]()
        for (entry,) in self.machines.rows("select entry from transcript where agent <> 'lead'"):
            done.update(re.findall(r"Task (\d+) \(completed, owner", entry))
        self.note(max(done.values(), default=0) <= 1, f"tasks were completed more than once: {done}")

    def check_writers(self) -> None:
        rows = self.machines.rows(
            "select agent, incarnation, seq, epoch, program, host from written order by agent, incarnation, seq"
        )
        writers: dict[tuple[str, int], str] = {}
        last = ("", 0, 0)
        for agent, incarnation, _, epoch, program, host in rows:
            self.note((agent, incarnation) != last[:2] or epoch >= last[2], f"epochs of {agent} go back")
            last = (agent, incarnation, epoch)
            first = writers.setdefault((agent, epoch), program)
            self.note(first == program, f"{first} and {program} wrote for {agent} with the epoch {epoch}")
            is_holder = program.rpartition("-")[0] == host or host.endswith("-lead")
            self.note(is_holder, f"{program} wrote for {agent}, whom {host} ran")

    def check_repository(self) -> None:
        root = self.machines.lead.directory
        subjects = Counter(git(root, "log", "--no-merges", "--format=%s").splitlines())
        for id, owner in self.machines.rows("select id, owner from task"):
            self.note((root / f"{id}.txt").exists(), f"the work of {owner} on task {id} is missing")
            # Not always 1: a host that is replaced between its commit and its push may still push. Both are joined.
            self.note(subjects[f"Task {id}"] >= 1, f"the commit of task {id} is missing: {subjects}")

    def state(self) -> str:
        """For the message of a test that fails."""
        parts = [f"faults {self.faults}"]
        for query in (
            "select name, epoch, expires_at > clock_timestamp() from host",
            "select name, epoch, host, host_epoch from lease",
            "select name, left(doc, 80) from member",
            "select id, status, owner from task",
        ):
            parts += [str(row) for row in self.machines.rows(query)]
        for worker in self.workers.values():
            parts.append(f"--- {worker.name} {worker.process.poll()}\n" + "\n".join(worker.lines[-12:]))
        for log in sorted(self.machines.base.glob("lead-*.log"))[-2:]:
            parts.append(f"--- {log.name}\n{log.read_text()[-3000:]}")
        return "\n".join(parts)

    def close(self) -> None:
        if self.lead_process is not None and self.lead_process.poll() is None:
            self.lead_process.kill()
            self.lead_process.wait()
        for worker in self.workers.values():
            worker.process.send_signal(signal.SIGCONT)
        self.machines.close()
        for proxy in self.proxies.values():
            proxy.__exit__(None, None, None)


def base_of(server: Server) -> Path:
    """The directory with its socket."""
    return Path(server.url().partition("host=")[2])
