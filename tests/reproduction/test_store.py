"""The run store: adding, reading, packing, damaged files, and concurrent or killed processes."""

import errno
import gzip
import json
import math
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from helpers.run_records import configuration, record
from uulearn import storage
from uulearn.reproduction import store as module
from uulearn.reproduction.store import RECORD_FORMAT, RunStore, key, normalized
from uulearn.selection.trials import FoldStore


@pytest.fixture
def store(tmp_path):
    return RunStore(tmp_path / "store")


# Keys


def test_equal_settings_have_the_same_key():
    there = configuration()
    again = dict(reversed(there.items())) | {"epochs": 200.0, "l2": 0.005, "set_priors": (np.float64(0.8), 0.2)}
    assert key(again | {"seed": np.int64(0)}) == key(there)
    assert len(key(there)) >= 16
    assert set(key(there)) <= set("0123456789abcdef")


@pytest.mark.parametrize("change", [{"seed": 1}, {"slope": None}, {"lr": 5.0001e-5}, {"set_priors": [0.2, 0.8]}])
def test_different_settings_have_different_keys(change):
    assert key(configuration() | change) != key(configuration())


def test_true_and_one_have_different_keys():
    assert key({"a": True}) != key({"a": 1})


@pytest.mark.parametrize("value", [math.nan, math.inf, object()])
def test_rejects_values_that_are_not_settings(value):
    with pytest.raises(ValueError, match="a configuration must contain"):
        normalized({"lr": value})


# One process


@pytest.mark.parametrize("packed", [False, True])
def test_stored_record_is_read_back(store, packed):
    assert store.add(record())
    if packed:
        store.pack()
    assert RunStore(store.folder).get(configuration()) == record()
    assert configuration() in store
    assert configuration(7) not in store
    assert store.get(configuration(7)) is None
    assert len(store) == 1


def test_read_only_store_with_unfinished_moves_can_be_read(store, monkeypatch):
    assert store.add(record())
    complete = store.folder / "runs" / ".together.x.complete"
    complete.mkdir()
    (complete / "other.json").touch()

    def refuse(*arguments):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "replace", refuse)
    assert RunStore(store.folder).records() == [record()]
    assert FoldStore(store.folder / "runs").get("missing", None, ()) is None


def test_empty_store(store):
    assert len(store) == 0
    assert store.records() == []
    assert store.missing([configuration()]) == [configuration()]
    assert store.pack() == []


@pytest.mark.parametrize("packed", [False, True])
def test_existing_record_is_not_replaced(store, packed):
    assert store.add(record(accuracy=0.9))
    if packed:
        store.pack()
    assert not store.add(record(accuracy=0.5))
    assert store.get(configuration())["curves"]["test_accuracy"][0] == 0.9


def test_records_trained_together_are_stored_together(store):
    with pytest.raises(ValueError, match="must contain a dict 'curves'"):
        store.add_all([record(), {"configuration": configuration(1)}])
    assert len(store) == 0
    assert store.add_all([record(), record(), record(1)]) == [True, False, True]
    assert store.add_all([record()]) == [False]
    assert store.add_all([]) == []
    assert len(list((store.folder / "runs").iterdir())) == len(store) == 2


def test_curves_are_rounded_to_six_digits_and_read_non_finite_values_as_nan(store):
    data = record()
    data["curves"] = {
        "test_risk": [1 / 3, 123456.789, 1e-9 / 3, np.float32(0.1)],
        "unbiased": [0.5, math.inf, math.nan],
    }
    store.add(data)
    store.pack()
    curves = RunStore(store.folder).get(configuration())["curves"]
    assert curves["test_risk"] == [0.333333, 123457.0, 3.33333e-10, 0.1]
    assert curves["unbiased"][0] == 0.5
    assert all(map(math.isnan, curves["unbiased"][1:]))


def test_filters_select_records(store):
    for seed in range(3):
        store.add(record(seed))
        store.add(record(seed, method="abs", slope=None))
    store.pack(method="abs")
    assert len(store) == 6
    assert len(list(store.folder.glob("runs/*.json"))) == 3
    assert {r["configuration"]["seed"] for r in store.records(method="abs")} == {0, 1, 2}
    assert len(store.records(seed=1.0, set_priors=(0.8, 0.2))) == 2
    assert len(store.records(slope=None)) == 3
    assert len(store.records(no_such_entry=None)) == 6
    assert store.records(dataset="kmnist") == []


def test_missing_keeps_order_and_removes_repetitions(store):
    store.add(record(1))
    asked = [configuration(seed) for seed in (3, 1, 2, 3, 0)]
    assert [c["seed"] for c in store.missing(asked)] == [3, 2, 0]


@pytest.mark.parametrize("part", ["configuration", "curves"])
def test_rejects_incomplete_records(store, part):
    data = record()
    del data[part]
    with pytest.raises(ValueError, match=f"must contain a dict '{part}'"):
        store.add(data)


# Packing


def test_archives_are_per_group_dataset_and_model_and_packing_is_idempotent(store):
    for seed in range(4):
        store.add(record(seed, dataset=["mnist", "kmnist"][seed % 2]))
    written = store.pack("table 3")
    assert [path.name for path in written] == ["table-3-kmnist-mlp.jsonl.gz", "table-3-mnist-mlp.jsonl.gz"]
    before = [path.read_bytes() for path in written]
    assert list(store.folder.glob("runs/*")) == []
    assert store.pack("table 3") == []
    assert [path.read_bytes() for path in written] == before
    assert not list(store.folder.rglob(".*"))


def test_archive_bytes_do_not_depend_on_the_order_of_adding(tmp_path):
    one, two = RunStore(tmp_path / "one"), RunStore(tmp_path / "two")
    for seed in range(6):
        one.add(record(seed))
    (path,) = one.pack("g")
    for seed in (5, 3, 1, 0, 2, 4):
        two.add(record(seed))
        (other,) = two.pack("g")
    assert path.read_bytes() == other.read_bytes()
    assert path.read_bytes()[4:8] == bytes(4)  # no time in the header
    lines = gzip.decompress(path.read_bytes()).splitlines()
    assert [key(json.loads(line)["configuration"]) for line in lines] == sorted(key(configuration(s)) for s in range(6))


def test_archive_with_the_same_records_is_not_rewritten(store):
    store.add(record())
    (path,) = store.pack("g")
    content = gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(content, compresslevel=1))
    other = path.read_bytes()
    module._write_archive(path, content)
    assert path.read_bytes() == other


def test_archive_takes_precedence_over_a_loose_copy(store, tmp_path):
    store.add(record(accuracy=0.9))
    store.pack("g")
    late = RunStore(tmp_path / "late")
    late.add(record(accuracy=0.5))
    source = late.folder / "runs" / f"{key(configuration())}.json"
    source.rename(store.folder / "runs" / source.name)
    assert len(store) == 1
    assert store.get(configuration())["curves"]["test_accuracy"][0] == 0.9
    assert store.records()[0]["curves"]["test_accuracy"][0] == 0.9
    assert store.pack("other") == []
    assert list(store.folder.glob("runs/*")) == []
    assert store.get(configuration())["curves"]["test_accuracy"][0] == 0.9


def test_failed_packing_deletes_nothing(store, monkeypatch):
    store.add(record())

    def full(*_):
        raise OSError("No space left on device")

    monkeypatch.setattr(module, "write_atomically", full)
    with pytest.raises(OSError, match="No space"):
        store.pack()
    assert len(store) == 1
    assert not (store.folder / ".pack.lock").exists()


def test_only_one_process_packs_at_a_time(store, monkeypatch):
    monkeypatch.setattr(module, "LOCK_SECONDS", 0.05)
    store.add(record())
    packing = storage.file_lock(store.folder / ".pack.lock", "busy")
    with packing, pytest.raises(TimeoutError, match="is being packed by another process; .* delete .*pack.lock"):
        store.pack()
    assert len(store.pack()) == 1


# Damage


@pytest.mark.parametrize("content", [b"", b"{", b"[1, 2]", b"{}", b'{"format": 1, "configuration": [], "curves": {}}'])
def test_damaged_record_is_reported_with_the_fix(store, content):
    store.add(record())
    path = store.folder / "runs" / f"{key(configuration())}.json"
    path.write_bytes(content)
    for attempt in (store.records, store.pack, lambda: store.get(configuration())):
        with pytest.raises(ValueError, match=rf"{path.name} is damaged .*; delete it and run again\.$") as caught:
            attempt()
        assert "\n" not in str(caught.value)
    path.unlink()
    assert store.missing([configuration()])


@pytest.mark.parametrize("damage", [lambda b: b"", lambda b: b[: len(b) // 2], lambda b: b"no gzip", lambda b: b[:-9]])
def test_damaged_archive_is_reported_with_the_fix(store, damage):
    store.add(record())
    (path,) = store.pack("g")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=rf"{path.name} is damaged .*; delete it and run again\.$"):
        len(store)


def test_changed_digit_of_a_record_is_reported(store):
    store.add(record())
    path = store.folder / "runs" / f"{key(configuration())}.json"
    content = path.read_text()
    start = content.index('"curves"')
    digit = next(place for place in range(start, len(content)) if content[place].isdigit())
    path.write_text(content[:digit] + str(9 - int(content[digit])) + content[digit + 1 :])
    with pytest.raises(ValueError, match=r"is damaged .*its checksum does not match"):
        store.records()


def test_record_under_a_wrong_name_is_reported(store):
    store.add(record())
    path = store.folder / "runs" / f"{key(configuration())}.json"
    path.rename(path.with_name(f"{key(configuration(1))}.json"))
    with pytest.raises(ValueError, match="does not match its configuration"):
        store.records()


def test_rejects_newer_formats(store):
    store.add(record())
    path = store.folder / "runs" / f"{key(configuration())}.json"
    path.write_text(json.dumps({"format": RECORD_FORMAT + 1, "runs": []}))
    with pytest.raises(
        ValueError, match=rf"has format {RECORD_FORMAT + 1}, but this version reads up to {RECORD_FORMAT}; upgrade"
    ):
        store.records()
    with pytest.raises(ValueError, match="cannot be stored"):
        store.add(record() | {"format": RECORD_FORMAT + 1})


def test_old_temporary_files_are_deleted(store):
    store.add(record())
    old, new = store.folder / "runs" / ".abc.json.x.tmp", store.folder / "runs" / ".def.json.y.tmp"
    for path in (old, new):
        path.write_text("{")
    os.utime(old, (time.time() - 7200,) * 2)
    assert len(store) == 1
    store.pack()
    assert not old.exists()
    assert new.exists()


# Many processes. The script imports the library once and forks, which is quick.

CROWD = """
    import os, sys, time
    sys.path.insert(0, sys.argv[2])
    from helpers.run_records import configuration, record
    from uulearn.reproduction.store import RunStore

    def child(work):
        pid = os.fork()
        if pid == 0:
            try:
                work()
                os._exit(0)
            except BaseException as error:
                print(repr(error), file=sys.stderr, flush=True)
                os._exit(1)
        return pid

    def write(number):
        store = RunStore(sys.argv[1])
        for step in range(60):
            seed = (step + 15 * number) % 90  # each seed is written by two or three of the four
            store.add(record(seed, epochs=200))
            if step % 10 == 0 and record(seed)["configuration"] not in store:
                raise AssertionError(f"seed {seed} is lost")

    def pack():
        store, seen = RunStore(sys.argv[1]), 0
        while os.getppid() == parent and not os.path.exists(sys.argv[1] + "/done"):
            store.pack("crowd")
            if len(store) < seen:
                raise AssertionError("a record is lost")
            seen = len(store)

    def read():
        seen = set()
        while os.getppid() == parent and not os.path.exists(sys.argv[1] + "/done"):
            now = {r["configuration"]["seed"] for r in RunStore(sys.argv[1]).records()}
            if seen - now:
                raise AssertionError(f"{seen - now} disappeared")
            seen = now

    parent = os.getpid()
    writers = [child(lambda number=number: write(number)) for number in range(4)]
    others = [child(pack), child(pack), child(read)]
    failed = [os.waitpid(pid, 0)[1] for pid in writers]
    open(sys.argv[1] + "/done", "w").close()
    failed += [os.waitpid(pid, 0)[1] for pid in others]
    sys.exit(any(failed))
"""

KILLED = """
    import os, signal, sys, time
    sys.path.insert(0, sys.argv[2])
    from helpers.run_records import configuration, record
    from uulearn.reproduction.store import RunStore

    for attempt in range(12):
        pid = os.fork()
        if pid == 0:
            store = RunStore(sys.argv[1])
            for seed in range(10_000):
                store.add(record(1000 * attempt + seed, epochs=200))
                if seed % 7 == 6:
                    store.pack("killed")
            os._exit(0)
        time.sleep(0.03 + 0.005 * attempt)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
"""


def run_script(script, tmp_path):
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(script))
    folder = tmp_path / "store"
    folder.mkdir()
    arguments = [sys.executable, str(path), str(folder), str(Path(__file__).parents[1])]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return RunStore(folder)


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="the test forks")


@needs_fork
def test_concurrent_writers_packers_and_readers(tmp_path):
    store = run_script(CROWD, tmp_path)
    written = {(step + 15 * number) % 90 for number in range(4) for step in range(60)}
    assert {r["configuration"]["seed"] for r in store.records()} == written
    assert len(store) == len(written)
    store.pack("crowd")
    assert list(store.folder.glob("runs/*")) == []
    assert RunStore(store.folder).get(configuration(3)) == record(3, epochs=200)


@needs_fork
def test_killed_writers_leave_a_readable_store(tmp_path):
    store = run_script(KILLED, tmp_path)
    seeds = sorted(r["configuration"]["seed"] for r in store.records())
    assert seeds
    for attempt in range(12):  # each writer counted up, so its finished runs have no gaps
        mine = [seed for seed in seeds if seed // 1000 == attempt]
        assert mine == list(range(1000 * attempt, 1000 * attempt + len(mine)))
    assert store.add(record(99_999))
    store.pack("killed")
    assert len(RunStore(store.folder)) == len(seeds) + 1


def test_runs_of_one_job_are_stored_together_if_the_process_is_killed(store, monkeypatch):
    """The rounding of a run depends on the runs trained with it, so storing a part would change the others."""
    records, moved, replace = [record(seed=seed) for seed in range(3)], [], Path.replace

    def killed(path, target):
        if path.suffix == ".json" and path.parent.suffix == ".complete":
            moved.append(target)
            if len(moved) == 2:
                raise KeyboardInterrupt
        return replace(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            store.add_all(records)
    assert RunStore(store.folder).missing([one["configuration"] for one in records]) == []
    assert not list((store.folder / "runs").glob(".*"))
