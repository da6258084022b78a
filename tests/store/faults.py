"""A team on several hosts that talks, claims tasks and merges, and everything that can go wrong under it.

What the model says depends on the conversation only, so that any restart continues.
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
TAKEOVER_SECONDS = 3 * LEASE_SECONDS
"""The promise is 45 s with a lease of 30 s. Half of a short lease is too little for git on a busy machine."""
TASKS = 8
"""In each round."""
FRAME = re.compile(r'type="task"[^>]* task="(\d+)"')
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
        self.takeovers: list[float] = []

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
            assert self.lead_process is not None
            try:
                code = self.lead_process.wait(120)
            except subprocess.TimeoutExpired:
                raise AssertionError(f"the run does not end: {self.state()}") from None
            if code == 0:
                return
            # Only at the start, a database that is away is an error.
            log = self.machines.base / f"lead-{self.starts['lead']}.log"
            assert log.read_text().startswith("teamcli: the database cannot be reached"), self.state()
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
        assert self.lead_process is not None
        self.lead_process.kill()
        self.lead_process.wait()
        self.start_lead()

    def crash(self, name: str, chance: random.Random) -> None:
        self.server.stop(signal.SIGQUIT)
        time.sleep(chance.choice((0.0, 0.5, 1.5 * LEASE_SECONDS)))
        self.server.start()

    def cut(self, name: str, chance: random.Random) -> None:
        self.interrupt(name, self.proxies[name].cut, chance)

    def stall(self, name: str, chance: random.Random) -> None:
        self.interrupt(name, self.proxies[name].stall, chance)

    def interrupt(self, name: str, act: Any, chance: random.Random) -> None:
        act()
        if name != "lead" and chance.random() < 0.7:
            self.wait_for_takeover(name)
        else:
            time.sleep(chance.choice((0.0, 0.3, 1.5 * LEASE_SECONDS)))
        self.proxies[name].restore()

    def freeze(self, name: str, chance: random.Random) -> None:
        process = self.workers[name].process
        process.send_signal(signal.SIGSTOP)
        time.sleep(LEASE_SECONDS * 1.1)
        self.wait_for_takeover(name)
        process.send_signal(signal.SIGCONT)

    def drain(self, name: str, chance: random.Random) -> None:
        worker = self.workers[name]
        worker.process.send_signal(signal.SIGTERM)
        code = worker.process.wait(60)
        worker.join()
        assert code == 0, (self.faults, code, worker.lines)
        self.workers[name] = self.start_worker(name)

    def wait_for_takeover(self, name: str) -> None:
        """Of all members that this host runs. Its lease has to run out first."""
        began = time.monotonic()
        if self.is_over:
            return
        query = f"select count(*) from lease l where host = '{name}' and l.name = any(array{list(MEMBERS)})"
        wait_until(lambda: self.machines.rows(query) == [(0,)] or self.is_over, 3 * TAKEOVER_SECONDS, 0.05)
        self.takeovers.append(time.monotonic() - began)

    # What must hold

    def check(self) -> None:
        self.check_mail()
        self.check_tasks()
        self.check_writers()
        self.check_repository()
        assert not self.api.breaches, (self.faults, self.api.breaches)
        assert max(self.takeovers, default=0.0) <= TAKEOVER_SECONDS, (self.faults, self.takeovers)

    def check_mail(self) -> None:
        read: dict[str, Counter[str]] = {name: Counter() for name in ("lead", *MEMBERS)}
        for agent, entry in self.machines.rows("select agent, entry from transcript"):
            marks = json.loads(entry).get("marks") or {}
            read[agent].update(marks.get("mail") or ())
        sent = self.machines.rows("select inbox, id, body from message where inbox not like '%/orders'")
        wrong = [(inbox, read[inbox][id], body) for inbox, id, body in sent if read[inbox][id] != 1]
        assert not wrong, (self.faults, wrong, self.state())

    def check_tasks(self) -> None:
        tasks = [json.loads(doc) for (doc,) in self.machines.rows("select doc from task")]
        assert len(tasks) >= TASKS * self.round, (self.faults, tasks)
        wrong = [task for task in tasks if task["status"] != "completed" or task["assigned"] != 1]
        assert not wrong, (self.faults, wrong, self.state())
        done = Counter[str]()
        for (entry,) in self.machines.rows("select entry from transcript where agent <> 'lead'"):
            done.update(re.findall(r"Task (\d+) \(completed, owner", entry))
        assert max(done.values(), default=0) <= 1, (self.faults, done)

    def check_writers(self) -> None:
        rows = self.machines.rows(
            "select agent, incarnation, seq, epoch, program, host from written order by agent, incarnation, seq"
        )
        writers: dict[tuple[str, int], str] = {}
        last = ("", 0, 0)
        for agent, incarnation, _, epoch, program, host in rows:
            assert (agent, incarnation) != last[:2] or epoch >= last[2], (self.faults, agent, "epochs go back")
            last = (agent, incarnation, epoch)
            assert writers.setdefault((agent, epoch), program) == program, (self.faults, agent, epoch)
            assert program.rpartition("-")[0] == host or host.endswith("-lead"), (self.faults, agent, program, host)

    def check_repository(self) -> None:
        root = self.machines.lead.directory
        subjects = Counter(git(root, "log", "--no-merges", "--format=%s").splitlines())
        for id, owner in self.machines.rows("select id, owner from task"):
            assert (root / f"{id}.txt").exists(), (self.faults, id, owner, self.state())
            # Not always 1: a host that is replaced between its commit and its push may still push. Both are joined.
            assert subjects[f"Task {id}"] >= 1, (self.faults, id, subjects)

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
