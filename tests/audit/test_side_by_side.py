"""Clients looked at by several processes: the same findings in the same order, and each file's metadata parsed once."""

import os
from collections import Counter

from artifacts import metadata
from artifacts.metadata import Metadata
from stages.audit import audit, auditor
from stages.execution.workers import Workers


def test_two_processes_find_what_one_finds(run_copy, monkeypatch):
    monkeypatch.setattr(auditor, "_MANY_FILES", 0)
    messages = sorted(run_copy.glob("clients/*/outbox/message-0001.safetensors"))
    data = messages[1].read_bytes()
    messages[1].write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    messages[2].unlink()
    alone, together = (audit(run_copy, workers=workers) for workers in (1, 2))
    assert alone.count("failure") and alone.to_json() == together.to_json()


def test_this_process_does_its_part():
    with Workers(1) as pool:
        done = dict(pool.spread([(os.getpid, ())] * 50))
        (helper,) = pool.all
        assert sorted(done) == list(range(50))
        assert set(done.values()) == {os.getpid(), helper.process.pid}


def test_each_file_s_metadata_is_parsed_once(finished_run, monkeypatch):
    parsed, check = Counter(), Metadata.__post_init__

    def count(self):
        parsed[self.kind, self.custody] += 1
        check(self)

    monkeypatch.setattr(metadata, "_parse_once", metadata._parse)  # nothing is remembered
    monkeypatch.setattr(Metadata, "__post_init__", count)
    assert audit(finished_run).passed
    for kind, custody, where in (("message", "outbound", "outbox/message"), ("update", "private", "private/update")):
        assert parsed[kind, custody] == len(list(finished_run.glob(f"clients/*/{where}-*"))) > 0
