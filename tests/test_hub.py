"""Downloads: planned, started on a yes only, resumed to the byte, checked, and clear about what went wrong.

All of it against the practice hub, over the real client and real sockets. Disks: one test writes to a real
file system of 4 MB (where the system lets a user mount one), one to /dev/full, which is always full.
"""

import contextlib
import hashlib
import http.server
import inspect
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import warnings

import pandas as pd
import pytest
from filelock import FileLock
from huggingface_hub import HfApi, constants, snapshot_download
from hypothesis import given
from hypothesis import strategies as st

from helpers import (
    figures,
    hub,
    hub_cache,
    hub_client,
    hub_drill,
    hub_errors,
    hub_fetch,
    hub_listing,
    hub_plan,
    practice_hub,
    practice_repository,
    published,
    settings,
)
from helpers.settings import CourseError

FIRST, LAST = practice_repository.SHARDS
FILES = next(iter(practice_repository.commits().values()))
TOTAL = sum(len(file.content) for file in FILES.values())
LONG = len(FILES[LAST].content)
WEIGHTS = ["*.safetensors"]


@pytest.fixture
def practice():
    with practice_hub.start() as running:
        yield running


def quiet(done, total):
    """Progress that nobody looks at."""


def fetch(practice, cache, **options):
    options = {"yes": True, "endpoint": practice.endpoint, "cache": cache, "progress": quiet} | options
    return hub.download(practice.repo, options.pop("revision", practice.older), wait_s=0.01, **options)


def contents_are_right(folder):
    return all((folder / path).read_bytes() == file.content for path, file in FILES.items())


def still_missing(practice, cache):
    of = hub.listing(practice.repo, practice.older, endpoint=practice.endpoint)
    return hub.plan(of, cache=cache).missing_bytes


# --- plan and yes


def test_without_yes_nothing_is_fetched_and_the_line_to_type_is_shown(practice, tmp_path, capsys):
    assert fetch(practice, tmp_path, yes=False, ignore=WEIGHTS) is None
    assert practice.sent_bytes() == 0
    assert list(tmp_path.iterdir()) == []
    said = capsys.readouterr().out
    line = f"hub.download('{practice.repo}', '{practice.older}', ignore=['*.safetensors'], yes=True)"
    assert line in said
    assert "still to fetch" in said


def test_the_plan_counts_what_is_there_and_what_is_missing(practice, tmp_path):
    fetch(practice, tmp_path, ignore=WEIGHTS)
    of = hub.listing(practice.repo, practice.older, endpoint=practice.endpoint)
    blobs = hub_cache.repo_folder(practice.repo, tmp_path) / "blobs"
    hub_fetch.part_path(blobs, FILES[LAST].sha256).write_bytes(b"x" * 1000)
    planned = hub.plan(of, mbit_per_s=8, cache=tmp_path)
    weights = len(FILES[FIRST].content) + LONG
    assert planned.total_bytes == TOTAL
    assert planned.missing_bytes == weights - 1000
    assert planned.have_bytes + planned.missing_bytes == planned.total_bytes
    assert planned.minutes == pytest.approx((weights - 1000) / 1e6 / 60)
    assert planned.fits
    values = dict(planned.table()[["what", "origin"]].to_numpy().tolist())
    assert values["bandwidth"] == "typed in"
    assert values["free on the disk"] == "measured"


def test_patterns_that_fit_nothing_are_an_error(practice, tmp_path):
    with pytest.raises(CourseError, match="No file"):
        fetch(practice, tmp_path, allow=["*.gguf"])


@given(st.floats(1, 1e12), st.floats(0.1, 1e5))
def test_minutes_scale_with_bytes_and_against_bandwidth(count, mbit):
    assert hub.minutes(2 * count, mbit) == pytest.approx(2 * hub.minutes(count, mbit))
    assert hub.minutes(count, 2 * mbit) == pytest.approx(hub.minutes(count, mbit) / 2)


def test_minutes_know_their_units_and_refuse_no_line():
    assert hub.minutes(7.5e6, 1) == 1.0  # 7.5 MB are 60 Mbit
    for nothing in (0, -1, float("nan")):
        with pytest.raises(CourseError, match="Mbit/s"):
            hub.minutes(1, nothing)


# --- whole downloads


def test_a_download_is_complete_and_found(practice, tmp_path):
    folder = fetch(practice, tmp_path)
    assert contents_are_right(folder)
    assert practice.sent_bytes() == TOTAL
    assert hub.local(practice.repo, practice.older, tmp_path) == folder
    assert hub.find(practice.repo, "config.json", cache=tmp_path) == folder / "config.json"
    assert hub.find(practice.repo, "nothing.json", cache=tmp_path) is None
    assert hub.unfinished(practice.repo, tmp_path).empty
    practice.stop()  # and all of this needs no hub
    assert hub.local(practice.repo, practice.older, tmp_path) == folder


def test_a_second_download_takes_nothing(practice, tmp_path):
    fetch(practice, tmp_path)
    practice.forget()
    fetch(practice, tmp_path)
    assert practice.sent_bytes() == 0


def test_a_part_is_no_complete_copy_but_its_files_are_found(practice, tmp_path):
    fetch(practice, tmp_path, ignore=WEIGHTS)
    assert hub.local(practice.repo, practice.older, tmp_path) is None
    assert hub.find(practice.repo, "chat_template.jinja", cache=tmp_path)
    assert hub.find(practice.repo, LAST, cache=tmp_path) is None
    fetch(practice, tmp_path, allow=WEIGHTS)  # the second part makes it whole
    assert hub.local(practice.repo, practice.older, tmp_path)


def test_what_the_client_fetched_by_itself_is_checked_and_not_fetched_again(practice, tmp_path):
    snapshot_download(practice.repo, endpoint=practice.endpoint, token=False, cache_dir=tmp_path)
    assert hub.local(practice.repo, practice.older, tmp_path) is None
    practice.forget()
    fetch(practice, tmp_path)
    assert practice.sent_bytes() == 0
    assert hub.local(practice.repo, practice.older, tmp_path)


def test_the_client_alone_can_do_it_too(practice, tmp_path):
    assert contents_are_right(fetch(practice, tmp_path, resume=False))
    assert hub.local(practice.repo, practice.older, tmp_path)


def test_a_cache_without_links_works_too(practice, tmp_path, monkeypatch):
    """As on Windows. Each file is there once, not as a copy beside its blob."""
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_SYMLINKS", True)
    folder = fetch(practice, tmp_path)
    assert contents_are_right(folder)
    assert not any(path.is_symlink() for path in folder.rglob("*"))
    assert list((folder.parents[1] / "blobs").glob("*")) == []
    assert hub.local(practice.repo, practice.older, tmp_path) == folder
    assert hub.find(practice.repo, "config.json", cache=tmp_path)
    practice.forget()
    fetch(practice, tmp_path)
    assert practice.sent_bytes() == 0


def test_a_branch_is_resolved_to_its_commit(practice, tmp_path):
    assert fetch(practice, tmp_path, revision=None).name == practice.older
    practice.move_main()
    assert fetch(practice, tmp_path, revision="main").name == practice.newer
    assert hub.local(practice.repo, practice.older, tmp_path)
    assert hub.local(practice.repo, practice.newer, tmp_path)


def test_the_listing_is_that_of_the_commit(practice):
    practice.move_main()
    of = hub.listing(practice.repo, practice.older, endpoint=practice.endpoint)
    assert dict(zip(of.files["file"], of.files["checksum"], strict=True)) == {
        path: file.etag for path, file in FILES.items()
    }
    assert hub.listing(practice.repo, None, endpoint=practice.endpoint).revision == practice.newer


def test_progress_ends_at_the_whole(practice, tmp_path):
    seen = []
    fetch(practice, tmp_path, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (TOTAL, TOTAL)
    assert seen == sorted(seen)


def test_a_token_goes_to_the_hub_and_never_to_the_store_or_the_disk(practice, tmp_path, capfd):
    fetch(practice, tmp_path, token="hf_secret")
    requests = practice.requests()
    assert requests.loc[requests["at"] == "hub", "token"].all()
    assert not requests.loc[requests["at"] == "store", "token"].any()
    kept = [path for path in tmp_path.rglob("*") if path.is_file() and b"hf_secret" in path.read_bytes()]
    assert kept == []
    assert "hf_secret" not in "".join(capfd.readouterr())


def test_no_token_goes_to_this_machine_unless_given(practice, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_of_the_learner")
    fetch(practice, tmp_path)
    assert not practice.requests()["token"].any()
    assert hub_client.token_for(hub_client.ENDPOINT, None) is None


# --- broken off


def test_a_connection_that_breaks_is_taken_up_at_the_same_byte(practice, tmp_path):
    practice.fail("break", file=LAST, after_bytes=500_000, times=3)
    assert contents_are_right(fetch(practice, tmp_path))
    got = practice.requests()
    got = got[(got["path"] == LAST) & (got["at"] == "store") & (got["bytes"] > 0)]
    assert len(got) == 4
    starts = [int(asked.removeprefix("bytes=").rstrip("-") or 0) for asked in got["range"]]
    assert starts == sorted(starts)
    assert starts[-1] > 0
    assert starts[-1] + got["bytes"].iloc[-1] == LONG


def test_killed_in_the_middle_the_next_run_fetches_the_missing_bytes_only(practice, tmp_path):
    broken = hub_drill.break_off(practice, tmp_path, file=LAST, after_bytes=1_234_567)
    assert broken.part_bytes == 1_234_567
    assert hub.local(practice.repo, practice.older, tmp_path) is None
    assert hub.find(practice.repo, LAST, cache=tmp_path) is None
    assert hub.find(practice.repo, "config.json", cache=tmp_path)
    assert hub_drill.second_run(practice, tmp_path) == LONG - 1_234_567
    asked = practice.requests()
    assert f"bytes={1_234_567}-" in set(asked["range"])
    assert contents_are_right(hub.local(practice.repo, practice.older, tmp_path))
    assert hub.unfinished(practice.repo, tmp_path).empty


def test_a_download_can_be_broken_off_again_in_the_same_folder(practice, tmp_path):
    """A learner runs the cell twice."""
    first = hub_drill.break_off(practice, tmp_path, file=LAST)
    hub_drill.second_run(practice, tmp_path)
    assert hub_drill.break_off(practice, tmp_path, file=LAST) == first


def test_a_download_that_ends_too_early_for_the_drill_is_said(practice, tmp_path):
    with pytest.raises(CourseError, match="Run this cell again"):
        hub_drill.break_off(practice, tmp_path, file=LAST, after_bytes=10**9)


def test_the_client_alone_starts_an_unfinished_file_anew_after_a_kill(practice, tmp_path):
    """What lesson 02 says about huggingface_hub; should it learn to resume, the lesson has to change."""
    hub_drill.break_off(practice, tmp_path, way=hub_drill.CLIENT, file=LAST)
    assert hub_drill.second_run(practice, tmp_path, hub_drill.CLIENT) == LONG
    assert list(hub.unfinished(practice.repo, tmp_path)["whose"]) == ["the client's"]


def test_ctrl_c_ends_it_soon_and_loses_nothing(practice, tmp_path):
    practice.fail("pause", file=LAST, after_bytes=1_000_000)
    child = subprocess.Popen(
        [sys.executable, "-m", "helpers.hub_drill", hub_drill.COURSE, practice.endpoint, str(tmp_path)],
        cwd=settings.REPO,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert practice.paused.wait(60)
        child.send_signal(signal.SIGINT)
        practice.mend()
        assert "KeyboardInterrupt" in child.communicate(timeout=60)[1]
    finally:
        child.kill()
        child.communicate()
    blobs = hub_cache.repo_folder(practice.repo, tmp_path) / "blobs"
    kept = {
        name: hub_fetch.part_bytes(blobs, FILES[name].sha256, len(FILES[name].content))
        for name in (FIRST, LAST)
    }
    assert kept[LAST] > 0
    assert hub.local(practice.repo, practice.older, tmp_path) is None
    practice.forget()
    fetch(practice, tmp_path)
    for name, count in kept.items():
        assert practice.sent_bytes(name) == len(FILES[name].content) - count


def test_a_part_of_full_length_is_checked_and_not_fetched_again(practice, tmp_path):
    """A download can be stopped between the last byte and the check."""
    blobs = hub_cache.repo_folder(practice.repo, tmp_path) / "blobs"
    blobs.mkdir(parents=True)
    hub_fetch.part_path(blobs, FILES[LAST].sha256).write_bytes(FILES[LAST].content)
    hub_fetch.part_path(blobs, FILES[FIRST].sha256).write_bytes(b"x" * len(FILES[FIRST].content))
    assert contents_are_right(fetch(practice, tmp_path))
    assert practice.sent_bytes(LAST) == 0
    assert practice.sent_bytes(FIRST) == len(FILES[FIRST].content)
    assert hub.unfinished(practice.repo, tmp_path).empty


def test_a_killed_process_locks_nothing_and_a_living_one_does(practice, tmp_path):
    hub_drill.break_off(practice, tmp_path, file=LAST)
    lock = hub_cache.lock_path(practice.repo, FILES[LAST].sha256, tmp_path)
    with FileLock(lock), pytest.raises(CourseError, match="Another program"):
        fetch(practice, tmp_path)
    assert fetch(practice, tmp_path)


def test_when_one_file_fails_the_others_are_told_to_stop(practice, tmp_path, monkeypatch):
    told = {}

    def one(wanted, *_, stop, **__):
        if wanted.file == LAST:
            raise OSError("broken")
        told[wanted.file] = stop.wait(30)
        raise hub_fetch.Stopped

    monkeypatch.setattr(hub_fetch, "fetch", one)
    with pytest.raises(OSError, match="broken"):
        fetch(practice, tmp_path)
    assert told[FIRST]


# --- checksums


def test_a_wrong_byte_is_noticed_thrown_away_and_fetched_again(practice, tmp_path):
    practice.fail("flip", file=LAST, after_bytes=77)
    assert contents_are_right(fetch(practice, tmp_path))
    assert practice.sent_bytes(LAST) == 2 * LONG
    assert practice.sent_bytes(FIRST) == len(FILES[FIRST].content)


def test_wrong_twice_is_an_error_and_only_the_broken_file_is_gone(practice, tmp_path):
    practice.fail("flip", times=2, file=LAST)
    with pytest.raises(hub_errors.WrongChecksum, match=LAST):
        fetch(practice, tmp_path)
    blobs = hub_cache.repo_folder(practice.repo, tmp_path) / "blobs"
    assert not (blobs / FILES[LAST].sha256).exists()
    assert not hub_fetch.part_path(blobs, FILES[LAST].sha256).exists()
    assert hub.local(practice.repo, practice.older, tmp_path) is None
    assert hub.find(practice.repo, "config.json", cache=tmp_path)
    practice.forget()
    fetch(practice, tmp_path)
    assert practice.sent_bytes("tokenizer.json") == 0


def test_wrong_twice_by_the_client_is_an_error_too(practice, tmp_path):
    practice.fail("flip", times=2, file=LAST)
    with pytest.raises(hub_errors.WrongChecksum, match=LAST):
        fetch(practice, tmp_path, resume=False)
    assert not (hub_cache.repo_folder(practice.repo, tmp_path) / "blobs" / FILES[LAST].sha256).exists()
    stamp = hub_cache.read_stamp(practice.repo, practice.older, tmp_path)
    assert set(stamp["files"]) == set(FILES) - {LAST}
    assert stamp["missing"] == [LAST]


def test_the_client_alone_accepts_a_wrong_byte_and_verify_finds_it(practice, tmp_path):
    """What lesson 02 says about plain HTTP; and its check agrees with ours."""
    practice.fail("flip", file=LAST)
    here = {"endpoint": practice.endpoint, "token": False}
    snapshot_download(practice.repo, revision=practice.older, cache_dir=tmp_path, **here)
    of = hub.listing(practice.repo, practice.older, endpoint=practice.endpoint)
    found = hub.verify(of, cache=tmp_path)
    assert list(found.loc[~found["right"], "file"]) == [LAST]
    theirs = HfApi(**here).verify_repo_checksums(practice.repo, revision=practice.older, cache_dir=tmp_path)
    assert [one["path"] for one in theirs.mismatches] == [LAST]
    assert hub.local(practice.repo, practice.older, tmp_path) is None
    practice.forget()
    assert contents_are_right(fetch(practice, tmp_path))
    assert practice.sent_bytes() == LONG


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", LAST])
def test_a_file_that_changed_on_the_disk_counts_no_more_and_is_mended(practice, tmp_path, name):
    folder = fetch(practice, tmp_path)
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).resolve().write_bytes(content)
    assert hub.local(practice.repo, practice.older, tmp_path) is None
    assert hub.find(practice.repo, name, cache=tmp_path) is None
    practice.forget()
    fetch(practice, tmp_path)
    assert practice.sent_bytes() == len(content)
    assert contents_are_right(hub.local(practice.repo, practice.older, tmp_path))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"files": 3}', '{"files": {"config.json": {}}}'])
def test_a_damaged_stamp_is_no_stamp(practice, tmp_path, text):
    fetch(practice, tmp_path)
    stamp = hub_cache._stamp_path(practice.repo, practice.older, tmp_path)
    stamp.write_text(text)
    assert hub.local(practice.repo, practice.older, tmp_path) is None
    assert hub.find(practice.repo, "config.json", cache=tmp_path)  # its name still tells its checksum


def test_a_missing_file_is_no_complete_copy(practice, tmp_path):
    folder = fetch(practice, tmp_path)
    (folder / "README.md").unlink()
    assert hub.local(practice.repo, practice.older, tmp_path) is None


def test_find_wants_the_whole_file(practice, tmp_path):
    """A blob cut short, as by a full disk under another program, is not taken for the file."""
    folder = fetch(practice, tmp_path)
    path = (folder / "tokenizer.json").resolve()
    path.write_bytes(path.read_bytes()[:-1])
    assert hub.find(practice.repo, "tokenizer.json", cache=tmp_path) is None


# --- refusals


@pytest.mark.parametrize(
    ("fault", "kind", "says"),
    [
        ("401 gated", hub_errors.NotAllowed, ["accept its terms", "hf auth login"]),
        ("401 token", hub_errors.NotAllowed, ["token", "hf auth login"]),
        ("404 repository", hub_errors.NotThere, ["letter by letter"]),
        ("404 revision", hub_errors.NotThere, ["no branch, tag or commit", "list_repo_refs"]),
        ("429", hub_errors.TooManyRequests, ["wait 55 s", "Nothing that was fetched is lost"]),
        ("503", hub_errors.OutOfService, ["out of service", "Nothing that was fetched is lost"]),
    ],
)
def test_a_refusal_says_what_to_type(practice, tmp_path, fault, kind, says):
    practice.fail(fault, wait_s=55, times=100)
    with pytest.raises(kind) as caught:
        fetch(practice, tmp_path)
    for words in says:
        assert words in str(caught.value)
    assert practice.sent_bytes() == 0
    practice.mend()
    assert contents_are_right(fetch(practice, tmp_path))


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("401 gated", hub_errors.NotAllowed),
        ("401 token", hub_errors.NotAllowed),
        ("404 file", hub_errors.NotThere),
        ("429", hub_errors.TooManyRequests),
        ("503", hub_errors.OutOfService),
    ],
)
def test_a_refusal_in_the_middle_of_a_download_loses_nothing(practice, tmp_path, monkeypatch, fault, kind):
    monkeypatch.setattr(hub_fetch, "LONGEST_WAIT_S", 0.05)
    practice.fail("break", file=LAST, after_bytes=2_000_000)
    got = threading.Event()

    def progress(done, total):
        if done > TOTAL - LONG + 1_000_000 and not got.is_set():
            got.set()
            practice.fail(fault, file=LAST, times=100, wait_s=300)

    with pytest.raises(kind):
        fetch(practice, tmp_path, progress=progress)
    kept = int(hub.unfinished(practice.repo, tmp_path)["bytes"].sum())
    assert kept > 0
    assert hub.local(practice.repo, practice.older, tmp_path) is None
    practice.mend()
    missing = still_missing(practice, tmp_path)
    assert missing <= TOTAL - kept
    practice.forget()
    fetch(practice, tmp_path)
    assert practice.sent_bytes() == missing


@pytest.mark.parametrize("fault", ["429", "503"])
def test_a_short_pause_is_waited_for(practice, tmp_path, fault):
    fetch(practice, tmp_path, ignore=WEIGHTS)
    practice.fail(fault, times=1, wait_s=0, file=LAST)
    assert contents_are_right(fetch(practice, tmp_path))


def test_no_network_says_so_at_once_and_the_lesson_has_its_listing(monkeypatch, capsys):
    with practice_hub.start() as gone:
        address = gone.endpoint
    with pytest.raises(hub_errors.NoNetwork, match="Check the network"):
        hub.listing("a/b", None, endpoint=address)
    monkeypatch.setattr(hub_client, "reachable", lambda *_, **__: False)
    found = hub.look()
    assert not found.live
    assert "data/hub" in capsys.readouterr().out
    with pytest.raises(CourseError, match="does not answer"):
        hub.download()
    with pytest.raises(CourseError, match="Nothing is recorded about 'a/b'"):
        hub.look("a/b")


def test_a_name_server_that_hangs_is_not_waited_for(monkeypatch):
    hang = threading.Event()
    monkeypatch.setattr(hub_client.http(), "head", lambda *_, **__: hang.wait())
    try:
        assert not hub_client.reachable("https://hub.invalid", within_s=0.05)
    finally:
        hang.set()


def test_the_offline_setting_is_respected(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(hub_client.http(), "head", lambda *_, **__: pytest.fail("asked the network"))
    with pytest.raises(hub_errors.NoNetwork, match="unset HF_HUB_OFFLINE"):
        hub.listing()


def test_an_unknown_error_stays_what_it_is(tmp_path):
    with pytest.raises(ZeroDivisionError), hub_errors.explained("a/b", None, folder=tmp_path):
        raise ZeroDivisionError


# --- answers that are none


class Liar:
    """A hub with one large and one small file that answers what a test tells it to."""

    CONTENT = b"x" * 300_000
    SMALL = b"{}\n"
    COMMIT = "a" * 40

    def __init__(self):
        digest = hashlib.sha256(self.CONTENT).hexdigest()
        self.large = {"type": "file", "path": "model.safetensors", "size": len(self.CONTENT), "oid": "b" * 40}
        self.large["lfs"] = {"oid": digest, "size": len(self.CONTENT), "pointerSize": 130}
        self.small = {"type": "file", "path": "config.json", "size": len(self.SMALL)}
        self.small["oid"] = practice_repository.git_sha1(self.SMALL)
        self.commit = self.COMMIT
        self.said = {}  # which question -> (status, headers, body), in place of the right answer
        self.asked = []
        liar = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_HEAD(self):
                self.do_GET()

            def do_GET(self):
                liar.asked.append(self.path)
                start = int(self.headers.get("Range", "bytes=0-")[6:-1])
                status, headers, body = liar.answer(self.path, start, self.command)
                self.send_response(status)
                for name, value in ({"Content-Length": str(len(body))} | headers).items():
                    if value is not None:
                        self.send_header(name, value)
                self.close_connection = headers.get("Content-Length", "") is None
                self.end_headers()
                if self.command == "GET":
                    with contextlib.suppress(OSError):
                        self.wfile.write(body)

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, path, start, method):
        hub_says = {"X-Repo-Commit": self.COMMIT}
        name = "tree" if "/tree/" in path else path.split("/")[1]
        if name in self.said and method == "GET":
            return self.said[name]
        if name == "tree":
            return 200, {}, json.dumps([self.large, self.small]).encode()
        if name == "api":
            return 200, {}, json.dumps({"id": "o/n", "sha": self.commit, "siblings": []}).encode()
        if path.endswith("config.json"):
            return 200, hub_says | {"ETag": self.small["oid"]}, self.SMALL
        if path.endswith("model.safetensors"):
            digest = self.large["lfs"]["oid"]
            there = {"X-Linked-ETag": digest, "X-Linked-Size": str(len(self.CONTENT)), "ETag": digest}
            place = f"http://localhost:{self.server.server_port}/store"
            return 302, hub_says | there | {"Location": place}, b""
        return (206 if start else 200), {}, self.CONTENT[start:]

    def fetch(self, cache):
        return hub.download(
            "o/n", None, yes=True, endpoint=self.endpoint, cache=cache, progress=quiet, wait_s=0.001
        )


@pytest.fixture
def liar():
    made = Liar()
    yield made
    made.server.shutdown()
    made.server.server_close()


LOGIN = b"<html>Welcome to the hotel. Please sign in.</html>"
UNSAID = {"Content-Length": None, "Connection": "close"}


@pytest.mark.parametrize(
    "answer",
    [
        (200, {"Content-Type": "text/html"}, LOGIN),
        (206, {"Content-Type": "text/html"}, LOGIN),
        (200, {}, b""),
        (206, {}, b""),
        (200, {}, Liar.CONTENT[:1000]),
        (200, {}, Liar.CONTENT + b"y"),
        (200, UNSAID, Liar.CONTENT[:1000]),
        (200, UNSAID, Liar.CONTENT + b"y" * 5_000_000),
        (206, {"Content-Range": "bytes 7-299999/300000"}, Liar.CONTENT[1000:]),
        (200, {"Content-Encoding": "gzip"}, Liar.CONTENT),
        (204, {}, b""),
        (302, {}, b""),
    ],
)
def test_what_is_not_the_file_ends_soon_and_is_not_kept_for_it(liar, tmp_path, answer):
    """Not an endless loop, not a full disk, not a traceback; and a part that was there stays as it was."""
    blobs = hub_cache.repo_folder("o/n", tmp_path) / "blobs"
    blobs.mkdir(parents=True)
    part = hub_fetch.part_path(blobs, liar.large["lfs"]["oid"])
    part.write_bytes(Liar.CONTENT[:1000])
    liar.said["store"] = answer
    with pytest.raises(hub_fetch.NotTheFile, match="is not that file") as caught:
        liar.fetch(tmp_path)
    assert hub_errors.AGAIN in str(caught.value)
    assert liar.asked.count("/store") <= hub_fetch.ATTEMPTS + 1
    assert part.stat().st_size <= len(Liar.CONTENT)
    if answer[1] is not UNSAID:
        assert part.read_bytes() == Liar.CONTENT[:1000]
    assert hub.find("o/n", "model.safetensors", cache=tmp_path) is None
    liar.said.clear()
    assert (liar.fetch(tmp_path) / "model.safetensors").read_bytes() == Liar.CONTENT


def test_a_part_that_is_too_long_is_thrown_away(liar, tmp_path):
    blobs = hub_cache.repo_folder("o/n", tmp_path) / "blobs"
    blobs.mkdir(parents=True)
    hub_fetch.part_path(blobs, liar.large["lfs"]["oid"]).write_bytes(b"z" * 300_001)
    assert (liar.fetch(tmp_path) / "model.safetensors").read_bytes() == Liar.CONTENT


@pytest.mark.parametrize("question", ["api", "tree"])
@pytest.mark.parametrize("body", [LOGIN, b"[]", b"null", b"{}", b'{"id":"o/n","sha":', b'[{"type":"file"}]'])
def test_an_answer_that_is_no_listing_is_told(liar, tmp_path, question, body):
    liar.said[question] = (200, {}, body)
    with pytest.raises(CourseError):  # an empty list of files is a list: then no file fits
        liar.fetch(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_answers_that_lead_in_a_circle_are_told(liar, tmp_path):
    for question, path in (("api", "/api/models/o/n"), ("store", "/store")):
        liar.said = {question: (302, {"Location": path}, b"")}
        with pytest.raises(hub_errors.HubError, match="it is not the Hub"):
            liar.fetch(tmp_path)


def test_a_list_that_stalls_is_given_up(liar, tmp_path, monkeypatch):
    monkeypatch.setattr(hub_client, "TREE_TIMEOUT_S", 0.3)
    liar.said["tree"] = (200, {"Content-Length": "1000"}, b"[")
    with pytest.raises(hub_errors.NoNetwork, match="fell silent"):
        liar.fetch(tmp_path)


@pytest.mark.parametrize(
    ("what", "field", "value"),
    [
        ("large", "path", "../../../../victim"),
        ("large", "path", "/victim"),
        ("large", "path", "a//b"),
        ("large", "path", ""),
        ("small", "path", "a/../../victim"),
        ("small", "path", "model.safetensors"),
        ("small", "oid", "../../../../victim"),
        ("large", "size", -5),
        ("large", "size", "5"),
        ("lfs", "oid", "../../../../victim"),
        ("lfs", "size", -5),
        (None, "commit", "../../../victim"),
    ],
)
def test_a_hub_can_write_nowhere_but_in_its_own_folder(liar, tmp_path, what, field, value):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    if what is None:
        liar.commit = value
    elif what == "lfs" or (what == "large" and field == "size"):
        liar.large["lfs"][field] = value
    else:
        getattr(liar, what)[field] = value
    with pytest.raises(hub_errors.HubError, match="it is not the Hub"):
        liar.fetch(tmp_path / "a" / "hub")
    assert [path.name for path in tmp_path.rglob("*")] == ["victim"]
    assert victim.read_text() == "mine"


@pytest.mark.parametrize("name", ["", "foo bar", "a/b/c", "../x", "https://huggingface.co/o/n", "x" * 500, 5])
def test_a_name_that_is_none_is_told(practice, name):
    with pytest.raises(hub_errors.NotThere, match="no name of a repository"):
        hub.listing(name, None, endpoint=practice.endpoint)


def test_a_cache_that_cannot_be_one_is_told(practice, tmp_path):
    (tmp_path / "file").write_text("mine")
    for cache in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(hub_errors.HubError, match="cannot be kept in"):
            fetch(practice, cache)
        assert hub.find(practice.repo, "config.json", cache=cache) is None
    assert (tmp_path / "file").read_text() == "mine"


def test_a_token_that_cannot_be_sent_is_told_and_not_shown(liar, tmp_path, monkeypatch):
    monkeypatch.setattr(hub_client, "is_local", lambda address: False)
    monkeypatch.setenv("HF_TOKEN", "hf_\u00e9verysecret")
    with pytest.raises(hub_errors.NotAllowed, match="HF_TOKEN") as caught:
        liar.fetch(tmp_path)
    assert "verysecret" not in str(caught.value)


def test_a_proxy_is_not_asked_for_this_machine(practice, tmp_path):
    """In a process of its own: the client reads the proxy once."""
    proxied = dict.fromkeys(("http_proxy", "HTTP_PROXY", "all_proxy"), "http://127.0.0.1:9")
    clean = {name: value for name, value in os.environ.items() if name.lower() != "no_proxy"}
    subprocess.run(
        [sys.executable, "-m", "helpers.hub_drill", hub_drill.COURSE, practice.endpoint, str(tmp_path)],
        cwd=settings.REPO, env=clean | proxied, check=True, timeout=60, capture_output=True,
    )  # fmt: skip
    assert hub.local(practice.repo, practice.older, tmp_path)


# --- disks


def test_a_disk_that_is_too_small_is_refused_before_the_first_byte(practice, tmp_path, monkeypatch):
    monkeypatch.setattr(hub_plan, "_free_bytes", lambda folder: hub_plan.SPARE_BYTES + TOTAL - 1)
    with pytest.raises(hub_errors.DiskFull, match="Free at least 1 bytes"):
        fetch(practice, tmp_path)
    assert practice.sent_bytes() == 0
    monkeypatch.setattr(hub_plan, "_free_bytes", lambda folder: hub_plan.SPARE_BYTES + TOTAL)
    assert fetch(practice, tmp_path)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full on this system")
def test_no_space_left_says_so_and_goes_on_later(practice, tmp_path):
    """The part is a link to a device on which each write fails with "no space left"."""
    blobs = hub_cache.repo_folder(practice.repo, tmp_path) / "blobs"
    blobs.mkdir(parents=True)
    part = hub_fetch.part_path(blobs, FILES[LAST].sha256)
    part.symlink_to("/dev/full")
    with pytest.raises(hub_errors.DiskFull, match="df -h"):
        fetch(practice, tmp_path)
    assert hub.local(practice.repo, practice.older, tmp_path) is None
    part.unlink()
    assert contents_are_right(fetch(practice, tmp_path))


SMALL_DISK = """
import sys
from pathlib import Path
from helpers import hub, hub_cache, hub_plan
from helpers.settings import CourseError
hub_plan.SPARE_BYTES = -10**12  # or the plan would refuse at once
repo, endpoint, cache = sys.argv[1], sys.argv[2], Path(sys.argv[3])
try:
    hub.download(repo, None, yes=True, endpoint=endpoint, cache=cache, progress=lambda *_: None)
except CourseError as error:
    print(type(error).__name__, error)
print("kept", int(hub.unfinished(repo, cache)["bytes"].sum()))
commits = [path.name for path in hub_cache.snapshot(repo, "", cache).glob("*")]
print("complete", any(hub.local(repo, commit, cache) for commit in commits))
"""


def test_a_real_disk_of_four_megabytes_runs_full(practice, tmp_path):
    mount = ["unshare", "--user", "--map-root-user", "--mount"]
    inside = f"mount -t tmpfs -o size=4m small {tmp_path}"
    if not shutil.which("unshare") or subprocess.run([*mount, "sh", "-c", inside]).returncode:
        pytest.skip("this system lets no user mount a file system")
    (tmp_path.parent / "run.py").write_text(SMALL_DISK)
    command = f'{inside} && exec "$0" "$@"'
    arguments = [str(tmp_path.parent / "run.py"), practice.repo, practice.endpoint, str(tmp_path)]
    done = subprocess.run(
        [*mount, "sh", "-c", command, sys.executable, *arguments],
        cwd=settings.REPO,
        env=os.environ | {"PYTHONPATH": str(settings.REPO)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "DiskFull The disk is full" in done.stdout, done.stderr
    assert "complete False" in done.stdout


# --- what is recorded, and what the lesson says of the client


def test_the_recorded_listing_is_what_was_published():
    of = hub.recorded()
    assert (of.revision, of.count, of.bytes) == (hub.REVISION, 34, 63_174_634_906)
    assert of.files["files"].sum() == of.count
    weights = of.files.loc[of.files["kind"] == "weights"].iloc[0]
    assert weights["files"] == published.value("hub.bf16_shards") == 13
    assert weights["bytes"] == 2 * published.value("phonellm.parameters")
    assert weights["origin"] == "modelled"
    assert of.files.loc[of.files["kind"] != "weights", "bytes"].isna().all()  # nobody published them
    assert round(of.bytes / 1e9, 2) == published.value("hub.bf16_size")
    rest = hub.by_kind(of)
    assert rest["bytes"].sum() == of.bytes
    assert rest["files"].sum() == of.count
    nvfp4 = hub.recorded(hub.NVFP4)
    assert nvfp4.bytes / 1e9 == published.value("hub.nvfp4_size")
    assert nvfp4.files["files"].iloc[0] == published.value("hub.nvfp4_shards")


def test_a_recorded_listing_can_be_planned_but_not_measured():
    planned = hub.plan(hub.recorded(), mbit_per_s=200)
    assert planned.total_bytes == 63_174_634_906
    assert "recorded in data/hub" in planned.table()["what"].iloc[0]
    assert set(planned.table()["origin"]) == {"", "published", "measured", "modelled", "typed in"}
    assert hub.plan(hub.recorded(), ignore=WEIGHTS).unknown == 21
    assert hub.measure_mbit_per_s(hub.recorded()) is None


def test_the_bandwidth_is_measured_with_a_piece_of_a_file(practice, monkeypatch):
    monkeypatch.setattr(hub_plan, "SAMPLE_BYTES", 100_000)
    of = hub.listing(practice.repo, None, endpoint=practice.endpoint)
    assert hub.measure_mbit_per_s(of, endpoint=practice.endpoint) > 0
    assert practice.sent_bytes() == 100_000
    practice.fail("503")
    assert hub.measure_mbit_per_s(of, endpoint=practice.endpoint) is None


def test_the_client_fetches_eight_files_at_once():
    assert inspect.signature(snapshot_download).parameters["max_workers"].default == 8


def test_kinds_of_files():
    kinds = {path: hub_listing.kind(path) for path in FILES}
    assert kinds[LAST] == "weights"
    assert kinds["model.safetensors.index.json"] == "config"
    assert kinds["images/calls.png"] == "pictures"
    assert kinds["chat_template.jinja"] == kinds["tokenizer.json"] == "tokenizer and template"
    assert hub_listing.kind("modeling_nemotron_h.py") == "code"
    assert hub_listing.kind("LICENSE_NVIDIA.txt") == kinds["README.md"] == "licence and card"


def test_the_cache_is_the_learners_own_if_they_have_one(monkeypatch, tmp_path):
    for name in hub_client.CACHE_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert hub.cache_folder() == settings.WORKSPACE / "hub"
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert hub.cache_folder() == tmp_path / "hub"
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "else"))
    assert hub.cache_folder() == tmp_path / "else"


def test_the_figures_say_their_numbers():
    parts = {"whole files kept": 2e6, "part of a file kept": 1e6, "fetched by the second run": 3e6}
    rows = pd.DataFrame({"way": "ours", "part": parts.keys(), "bytes": parts.values()})
    words = figures.alt_text(figures.second_run(rows.assign(origin="measured")))
    assert "3.00 MB of 6.00 MB" in words
    assert "measured" in words
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        frame = rows.assign(origin="modelled", label="BF16", mbit_per_s=[100, 200, 400], minutes=[8.0, 40, 2])
        figure = figures.download_minutes(frame, here_mbit_per_s=150)
    assert "40 minutes at 200 Mbit/s" in figures.alt_text(figure)
    assert "150 Mbit/s" in figures.alt_text(figure)


def test_the_stamp_says_what_was_checked(practice, tmp_path):
    fetch(practice, tmp_path, ignore=WEIGHTS)
    stamp = json.loads(hub_cache._stamp_path(practice.repo, practice.older, tmp_path).read_text())
    assert stamp["missing"] == sorted([FIRST, LAST])
    assert stamp["files"]["config.json"]["hash"] == FILES["config.json"].git_sha1


def test_a_missing_or_old_client_says_what_to_type(monkeypatch):
    monkeypatch.setitem(sys.modules, "httpx2", None)
    with pytest.raises(CourseError, match="pip install"):
        hub_client.library()
