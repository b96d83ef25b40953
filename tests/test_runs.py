"""What a learner measured is kept, never overwritten, and says under which conditions it was made."""

from __future__ import annotations

import errno
import json

import pandas as pd
import pytest

from helpers import runs
from helpers.settings import CourseError, Server

SECRET = "sk-very-secret-key-0123456789"
SERVER = Server("http://127.0.0.1:9/v1", "m", SECRET, "measured", "a server")


@pytest.fixture(autouse=True)
def own_workspace(tmp_path, monkeypatch):
    monkeypatch.setattr("helpers.settings.WORKSPACE", tmp_path)
    monkeypatch.setattr("helpers.runs.WORKSPACE", tmp_path)
    return tmp_path


def frame(value: float) -> pd.DataFrame:
    return pd.DataFrame({"ttft_ms": [value], "origin": ["measured"]})


def test_two_runs_within_one_second_are_both_kept():
    names = [runs.save("05-ttft", frame(value), SERVER, "one request") for value in (1.0, 2.0, 3.0)]
    assert len(set(names)) == 3
    assert [runs.load(name)[0]["ttft_ms"].iloc[0] for name in names] == [1.0, 2.0, 3.0]
    assert set(runs.names("05-ttft")) == set(names)


def test_conditions_stand_beside_the_table_and_the_key_does_not(own_workspace):
    name = runs.save("05-ttft", frame(1.0), SERVER, "one short question")
    table, about = runs.load(name)
    assert about["workload"] == "one short question"
    assert about["requests"] == len(table) == 1
    assert about["origin"] == "measured"
    assert about["server"]["name"] == "a server"
    assert about["machine"]["cores"] >= 1
    kept = "".join(path.read_text() for path in (own_workspace / "runs").iterdir())
    assert SECRET not in kept
    assert json.loads((own_workspace / "runs" / f"{name}.json").read_text())["date"]


def test_a_table_without_origins_is_refused():
    with pytest.raises(CourseError, match="origin"):
        runs.save("05-ttft", pd.DataFrame({"ttft_ms": [1.0]}), SERVER, "w")
    assert runs.names() == []


def test_a_run_that_is_not_there_is_named_with_those_that_are():
    name = runs.save("05-ttft", frame(1.0), SERVER, "w")
    with pytest.raises(CourseError, match=name):
        runs.load("06-budget")


@pytest.mark.parametrize("at", ["table", "conditions"])
def test_on_a_full_disk_no_half_of_a_run_is_left(own_workspace, monkeypatch, at):
    kept = runs.save("05-ttft", frame(1.0), SERVER, "w")

    def full(*rest, **more):
        raise OSError(errno.ENOSPC, "No space left on device")

    target = (pd.DataFrame, "to_csv") if at == "table" else (type(own_workspace), "write_text")
    with monkeypatch.context() as patch:
        patch.setattr(*target, full)
        with pytest.raises(CourseError, match=r"(?s)No space left.*Make some room"):
            runs.save("05-ttft", frame(2.0), SERVER, "w")
    assert {path.name for path in (own_workspace / "runs").iterdir()} == {f"{kept}.csv", f"{kept}.json"}


def test_a_folder_that_cannot_be_made_is_said(own_workspace):
    (own_workspace / "runs").write_text("a file is in the way")
    with pytest.raises(CourseError, match="set PHONELLM_WORKSPACE to another folder"):
        runs.save("05-ttft", frame(1.0), SERVER, "w")


@pytest.mark.parametrize(
    ("suffix", "text"), [("json", "{"), ("json", "[]"), ("json", ""), ("csv", ""), ("csv", 'a\n"1')]
)
def test_a_damaged_run_is_said_to_be(own_workspace, suffix, text):
    name = runs.save("05-ttft", frame(1.0), SERVER, "w")
    (own_workspace / "runs" / f"{name}.{suffix}").write_text(text)
    with pytest.raises(CourseError, match=r"(?s)is damaged.*measure and save again"):
        runs.load(name)
