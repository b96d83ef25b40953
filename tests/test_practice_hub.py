"""The practice hub speaks the Hub's protocol to the real client, and breaks as it is told to."""

import json
import socket
import struct
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from huggingface_hub import HfApi, constants, hf_hub_download, snapshot_download

from helpers import practice_hub, practice_protocol, practice_repository
from helpers.settings import CourseError

SHARD = practice_repository.SHARDS[1]


@pytest.fixture
def practice():
    with practice_hub.start() as hub:
        yield hub


def api(hub):
    return HfApi(endpoint=hub.endpoint, token=False)


def read(path):
    return Path(path).read_text()


def get(address, **headers):
    """Status, headers and body, also of an error."""
    request = urllib.request.Request(address, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read()


def test_a_fault_switched_on_twice_strikes_once(practice):
    """A learner runs the cell twice, and the second time nothing is fetched."""
    for _ in range(2):
        practice.fail("503", wait_s=1)
    address = f"{practice.endpoint}/api/models/{practice.repo}"
    assert [get(address)[0] for _ in range(2)] == [503, 200]


def test_the_repository_is_the_same_each_time():
    first = practice_repository.commits()
    practice_repository.commits.cache_clear()
    assert practice_repository.commits() == first
    # Known from git itself: printf 'hello\n' | git hash-object --stdin
    assert practice_repository.git_sha1(b"hello\n") == "ce013625030ba8dba906f756967f9e9ca394464a"


def test_the_shards_are_safetensors_and_the_index_fits_them():
    files = next(iter(practice_repository.commits().values()))
    index = json.loads(files["model.safetensors.index.json"].content)
    total = 0
    for name in practice_repository.SHARDS:
        content = files[name].content
        (length,) = struct.unpack("<Q", content[:8])
        header = json.loads(content[8 : 8 + length])
        assert {tensor for tensor, shard in index["weight_map"].items() if shard == name} == set(header)
        for about in header.values():
            start, end = about["data_offsets"]
            assert end - start == 2 * about["shape"][0] * about["shape"][1]
            total += end - start
        assert 8 + length + max(about["data_offsets"][1] for about in header.values()) == len(content)
    assert index["metadata"]["total_size"] == total


def test_a_shard_opens_with_the_safetensors_package(tmp_path):
    safetensors = pytest.importorskip("safetensors")
    content = next(iter(practice_repository.commits().values()))[SHARD].content
    (tmp_path / SHARD).write_bytes(content)
    with safetensors.safe_open(tmp_path / SHARD, "np") as shard:
        assert sorted(shard.keys()) == ["lm_head.weight", "model.layers.0.mlp.up_proj.weight"]
        assert shard.get_slice("lm_head.weight").get_shape() == [2048, 512]


def test_the_real_client_reads_info_tree_refs_and_paths(practice):
    info = api(practice).model_info(practice.repo, files_metadata=True)
    assert info.sha == practice.older
    files = practice.commits[practice.older]
    assert {s.rfilename: s.size for s in info.siblings} == {p: len(f.content) for p, f in files.items()}
    assert {s.rfilename for s in info.siblings if s.lfs} == {p for p, f in files.items() if f.sha256}
    tree = list(api(practice).list_repo_tree(practice.repo, recursive=True))
    assert {e.path for e in tree} == set(files) | {"images"}
    pages = practice.requests()["path"].str.contains("/tree/").sum()
    assert pages == 2  # more than one page, so the client follows the links
    flat = [e.path for e in api(practice).list_repo_tree(practice.repo)]
    assert "images" in flat
    assert "images/calls.png" not in flat
    inside = [e.path for e in api(practice).list_repo_tree(practice.repo, "images")]
    assert inside == ["images/calls.png"]
    refs = api(practice).list_repo_refs(practice.repo)
    assert [(one.name, one.target_commit) for one in refs.branches + refs.tags] == [
        ("main", practice.older),
        ("v1", practice.older),
    ]
    [found] = api(practice).get_paths_info(practice.repo, ["config.json", "nothing.here"])
    assert found.blob_id == files["config.json"].git_sha1


def test_the_real_client_downloads_it_all_and_a_second_time_nothing(practice, tmp_path):
    here = {"endpoint": practice.endpoint, "token": False, "cache_dir": tmp_path}
    folder = snapshot_download(practice.repo, **here)
    for path, file in practice.commits[practice.older].items():
        with open(f"{folder}/{path}", "rb") as got:
            assert got.read() == file.content
    assert practice.sent_bytes() == sum(len(f.content) for f in practice.commits[practice.older].values())
    practice.forget()
    snapshot_download(practice.repo, **here)
    assert practice.sent_bytes() == 0


def test_a_dry_run_sends_no_file(practice, tmp_path):
    dry = snapshot_download(
        practice.repo, endpoint=practice.endpoint, token=False, cache_dir=tmp_path, dry_run=True
    )
    assert sum(f.file_size for f in dry) == sum(
        len(f.content) for f in practice.commits[practice.older].values()
    )
    assert practice.sent_bytes() == 0


def test_main_moves_and_commits_stay(practice, tmp_path):
    here = {"endpoint": practice.endpoint, "token": False, "cache_dir": tmp_path}
    before = read(hf_hub_download(practice.repo, "chat_template.jinja", **here))
    practice.move_main()
    assert read(hf_hub_download(practice.repo, "chat_template.jinja", **here)) != before
    pinned = hf_hub_download(practice.repo, "chat_template.jinja", revision=practice.older, **here)
    assert read(pinned) == before


def test_the_store_is_another_address_and_serves_ranges(practice):
    file = practice.commits[practice.older][SHARD]
    address = f"{practice.store}/{file.sha256}"
    assert practice.store != practice.endpoint
    status, headers, body = get(address, Range="bytes=100-199")
    assert (status, body) == (206, file.content[100:200])
    assert headers["Content-Range"] == f"bytes 100-199/{len(file.content)}"
    assert get(address, Range=f"bytes={len(file.content) - 3}-")[2] == file.content[-3:]
    assert get(address, Range=f"bytes={len(file.content)}-")[0] == 416
    assert get(f"{practice.store}/{'0' * 64}")[0] == 404


@pytest.mark.parametrize(
    ("fault", "status", "code"),
    [
        ("401 gated", 401, "GatedRepo"),
        ("401 token", 401, None),
        ("404 repository", 401, "RepoNotFound"),
        ("404 revision", 404, "RevisionNotFound"),
        ("404 file", 404, "EntryNotFound"),
        ("429", 429, None),
        ("503", 503, None),
    ],
)
def test_a_refusal_comes_as_often_as_told_and_says_what_the_real_one_says(practice, fault, status, code):
    practice.fail(fault, times=2, wait_s=7)
    address = f"{practice.endpoint}/{practice.repo}/resolve/main/config.json"
    for _ in range(2):
        got, headers, _ = get(address)
        assert (got, headers["X-Error-Code"]) == (status, code)
    assert headers["Retry-After"] == ("7" if status in (429, 503) else None)
    assert get(address)[0] == 200


def test_what_is_not_there_is_refused_without_a_fault(practice):
    for path, code in (
        ("/somebody/else/resolve/main/config.json", "RepoNotFound"),
        (f"/{practice.repo}/resolve/nowhere/config.json", "RevisionNotFound"),
        (f"/{practice.repo}/resolve/main/nothing.json", "EntryNotFound"),
    ):
        assert get(practice.endpoint + path)[1]["X-Error-Code"] == code
    known = get(f"{practice.endpoint}/somebody/else/resolve/main/x", Authorization="Bearer abc")
    assert known[0] == 404


def test_a_fault_for_one_file_leaves_the_others_alone(practice):
    practice.fail("flip", file=SHARD, after_bytes=5)
    files = practice.commits[practice.older]
    other = files[practice_repository.SHARDS[0]]
    assert get(f"{practice.store}/{other.sha256}")[2] == other.content
    got = get(f"{practice.store}/{files[SHARD].sha256}")[2]
    assert [i for i, (a, b) in enumerate(zip(got, files[SHARD].content, strict=True)) if a != b] == [5]


def test_unknown_faults_are_refused_with_the_list(practice):
    with pytest.raises(CourseError, match="break, pause, flip"):
        practice.fail("melt")
    assert set(practice_protocol.IN_STORE) < set(practice_protocol.FAULTS)


def test_it_listens_on_this_machine_only_and_stops():
    hub = practice_hub.start()
    ports = [int(address.rsplit(":", 1)[1]) for address in (hub.endpoint, hub.store)]
    assert {address.rsplit(":", 1)[0] for address in (hub.endpoint, hub.store)} == {"http://127.0.0.1"}
    hub.stop()
    hub.stop()
    hub.mend()  # a cell that runs late
    assert not hub._thread.is_alive()
    for port in ports:
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", port), timeout=5)


def test_the_offline_setting_does_not_keep_the_client_from_this_machine(monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with practice_hub.start() as hub:
        assert api(hub).model_info(hub.repo).sha == hub.older
    assert constants.HF_HUB_OFFLINE
