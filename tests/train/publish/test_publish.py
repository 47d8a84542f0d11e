"""``cprt publish`` against a Hub on this machine: what is sent, and what happens when it goes wrong."""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import subprocess
import sys
import threading

import pytest
from publishing import BASE, FILES, REPO, TOKEN, metrics_of


def test_exactly_the_list_is_published_and_privately(publish, hub, trained):
    """Weights, processor and template byte for byte, configuration with the base's name; card and record are ours."""
    status, out, errors = publish(trained)
    assert (status, errors) == (0, [])
    assert hub.repos[REPO].private and set(hub.repos[REPO].branches) == {"main"}
    tree = hub.tree(REPO)
    assert set(tree) == FILES
    for name in ("adapter_model.safetensors", "chat_template.jinja", "processor_config.json", "tokenizer.json"):
        assert tree[name] == (trained / name).read_bytes()
    before, after = (
        json.loads(text) for text in ((trained / "adapter_config.json").read_text(), tree["adapter_config.json"])
    )
    assert after == {**before, "base_model_name_or_path": BASE, "revision": None}
    assert "is_local" in json.loads((trained / "tokenizer_config.json").read_text())
    assert not {"is_local", "local_files_only"} & set(json.loads(tree["tokenizer_config.json"]))
    assert (
        tree["README.md"] != (trained / "README.md").read_bytes() and b"trl" not in tree["README.md"].split(b"---")[1]
    )
    assert hub.repos[REPO].commits == [("main", "cprt publish: main")]
    assert hub.tokens == {f"Bearer {TOKEN}"}
    assert f"{hub.url}/{REPO}/tree/main: 8 files, commit {hub.repos[REPO].head('main')[:12]}" in out


def test_the_record_is_stripped(publish, hub, trained, copy, edit_json, monkeypatch):
    """Paths become file names; output folder, tokens, and names of users and hosts are gone; the rest is as it was."""
    monkeypatch.setenv("LOGNAME", "frank")
    monkeypatch.setattr(socket, "gethostname", lambda: "box7.example.org")

    def personal(record):
        record["config"]["trainer"] |= {
            "run_name": "carol-1",
            "hub_model_id": "carol/x",
            "resume_from_checkpoint": None,
        }
        record["config"]["data"] |= {"pairs": "/home/carol/my data/pairs", "images": "C:\\Users\\dave\\photos"}
        record["command"] += ["--output_dir", "/data/x", "--chat_template_path=/Users/erin/t.jinja", "--seed", "0"]
        record["notes"] = "by Frank on box7.example.org, see ../../private/carol_notes.txt"

    original = json.loads((trained / "run.json").read_text())
    edit_json(copy / "run.json", personal)
    assert publish(copy)[0] == 0
    text = hub.tree(REPO)["run.json"].decode()
    record = json.loads(text)
    for gone in (
        "/",
        "\\\\",
        "carol",
        "dave",
        "erin",
        "frank",
        "box7",
        "output_dir",
        "hub_token",
        "run_name",
        "hub_model_id",
    ):
        assert gone not in text.replace(BASE, "base").lower(), gone
    assert record["base_model"] == record["config"]["model"]["model_name_or_path"] == BASE
    assert record["config"]["data"]["pairs"] == "pairs" and record["config"]["data"]["images"] == "photos"
    assert record["inputs"]["pairs"] == {"path": "train.jsonl", "sha256": original["inputs"]["pairs"]["sha256"]}
    assert record["command"][-3:] == ["--chat_template_path=t.jinja", "--seed", "0"] and "x" not in record["command"]
    assert record["notes"] == "by *** on ***, see ***_notes.txt"
    for name in ("seed", "packages", "git", "prompt", "base_digest", "result", "created"):
        assert record[name] == original[name]
    trainer = record["config"]["trainer"]
    assert trainer["learning_rate"] == 0.005 and trainer["max_length"] is None
    assert record["config"]["model"]["lora_r"] == 64


def test_checkpoints_are_branches(publish, hub, trained):
    """Each with its own weights and a card that says which step it is and that it is not measured."""
    metrics = metrics_of(trained, trained.parent / "metrics")
    assert publish(trained, "--checkpoints", "true", "--metrics", str(metrics))[0] == 0
    assert list(hub.repos[REPO].branches) == ["main", "checkpoint-1", "checkpoint-2"]
    for step in (1, 2):
        tree = hub.tree(REPO, f"checkpoint-{step}")
        assert set(tree) == FILES
        assert (
            tree["adapter_model.safetensors"]
            == (trained / f"checkpoint-{step}" / "adapter_model.safetensors").read_bytes()
        )
        assert json.loads(tree["run.json"])["result"] == {"steps": step}
        card = tree["README.md"].decode()
        assert f"This is the checkpoint after step {step} of its run." in card and "Not measured" in card
        assert f'from_pretrained(ADAPTER, revision="checkpoint-{step}")' in card
        assert f"hf download {REPO} --revision checkpoint-{step} " in card
    assert "checkpoint after step" not in hub.tree(REPO)["README.md"].decode()
    assert hub.tree(REPO, "checkpoint-1")["adapter_model.safetensors"] != hub.tree(REPO)["adapter_model.safetensors"]


def test_a_checkpoint_can_be_the_adapter_itself_on_a_branch_of_ones_own(publish, hub, trained):
    assert publish(trained / "checkpoint-1", "--revision", "early/one")[0] == 0
    assert hub.tree(REPO) == {}
    tree = hub.tree(REPO, "early/one")
    assert tree["adapter_model.safetensors"] == (trained / "checkpoint-1" / "adapter_model.safetensors").read_bytes()
    assert json.loads(tree["run.json"])["result"] == {"steps": 1}


def test_public_only_when_asked(publish, hub, trained):
    assert publish(trained, "--private", "false")[0] == 0
    assert not hub.repos[REPO].private
    before = dict(hub.tree(REPO))
    hub.requests.clear()
    status, _, errors = publish(trained, "--paper_row", "qwen3_vl_8b")
    assert status == 2 and errors == [
        f"cprt publish: error: {REPO} is there already and public: --private false publishes to it all the same"
    ]
    assert hub.tree(REPO) == before and not [path for _, path in hub.requests if "/commit/" in path]


def test_a_second_time_nothing_is_sent(publish, hub, trained):
    """And of a tree that changed in one file, that file alone."""
    assert publish(trained)[0] == publish(trained)[0] == 0
    assert hub.puts == 1 and len(hub.repos[REPO].commits) == 1
    card = hub.tree(REPO)["README.md"]
    hub.requests.clear()
    assert publish(trained, "--license", "mit")[0] == 0
    assert hub.puts == 1 and len(hub.repos[REPO].commits) == 2
    assert hub.tree(REPO)["README.md"] == card.replace(b"license: other", b"license: mit").replace(b"`other`", b"`mit`")


def test_what_else_is_in_the_repository(publish, hub, trained):
    """A stale file that would be loaded with ours is taken away; what is not from us stays, and is pointed out."""
    assert publish(trained)[0] == 0
    hub.repos[REPO].branches["main"] |= {"vocab.json": b"{}", "training_args.bin": b"pickle"}
    status, out, _ = publish(trained)
    assert status == 0 and "it also holds training_args.bin, not from cprt" in out
    assert set(hub.tree(REPO)) == FILES | {"training_args.bin"}


def test_a_dry_run_shows_the_exact_tree_and_asks_nobody(publish, hub, trained, monkeypatch):
    """Names, sizes and digests of what a run then sends, and the card; no request, no token needed."""
    options = ["--checkpoints", "true"]
    with monkeypatch.context() as patch:
        patch.delenv("HF_TOKEN")
        status, out, errors = publish(trained, *options, "--dry_run", "true")
    assert (status, errors, hub.requests) == (0, [], [])
    assert f"{REPO} (private)" in out and out.endswith("dry run: nothing was sent\n")
    shown: dict[str, dict[str, tuple[int, str]]] = {}
    for line in out.partition("\nREADME.md of branch")[0].splitlines():
        if line.startswith("branch "):
            shown[line.split()[1]] = branch = {}
        elif found := re.fullmatch(r"  (\S+) +([\d,]+) bytes  sha256 ([0-9a-f]{64})", line):
            branch[found[1]] = int(found[2].replace(",", "")), found[3]
    assert ("  stays here: checkpoint-1/, checkpoint-2/, events.log, photo.jpg, training_args.bin, wandb/\n") in out
    assert publish(trained, *options)[0] == 0
    sent = {
        branch: {
            name: (len(content), hashlib.sha256(content).hexdigest())
            for name, content in hub.tree(REPO, branch).items()
        }
        for branch in hub.repos[REPO].branches
    }
    assert shown == sent
    assert hub.tree(REPO)["README.md"].decode() in out


# --- When it goes wrong ------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "step",
    [
        "/create",
        "/judge",
        "/tree/main",
        "/preupload/main",
        "/objects/batch",
        "/objects/",
        "/commit/main",
        "/branch/checkpoint-1",
        "/commit/checkpoint-2",
    ],
)
def test_after_a_failure_at_any_step_the_same_command_goes_on(publish, hub, trained, step):
    """One line that says so; then every branch is whole, and what was already there was not sent again."""
    # 412: somebody else committed in between. The library does not wait and try again on its own.
    hub.fail = lambda method, path: 412 if path.endswith(step) or (step == "/objects/" and method == "PUT") else None
    status, _, errors = publish(trained, "--checkpoints", "true")
    assert status == 2 and len(errors) == 1
    assert errors[0].startswith(f"cprt publish: error: {REPO}: ") and errors[0].endswith(
        "run the same command again to go on"
    )
    for branch in hub.repos[REPO].branches if hub.repos else []:
        assert hub.tree(REPO, branch).keys() in (FILES, set())  # a commit is whole or not there
    hub.fail = lambda method, path: None
    assert publish(trained, "--checkpoints", "true")[0] == 0
    assert all(set(hub.tree(REPO, branch)) == FILES for branch in ("main", "checkpoint-1", "checkpoint-2"))
    assert [branch for branch, _ in hub.repos[REPO].commits] == ["main", "checkpoint-1", "checkpoint-2"]
    assert hub.puts == 2  # the last checkpoint has main's weights


@pytest.mark.slow
def test_a_killed_upload_goes_on(hub, trained, tmp_path):
    """kill -9 while the commit is under way: the branch is untouched, and the weights are not sent a second time."""
    reached, release = threading.Event(), threading.Event()

    def stall(method: str, path: str) -> int | None:
        if "/commit/" not in path:
            return None
        reached.set()
        release.wait(300)
        return 400

    hub.fail = stall
    environment = {**os.environ, "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1", "TMPDIR": str(tmp_path)}
    command = [
        sys.executable,
        "-m",
        "train.publish.run",
        "--adapter",
        str(trained),
        "--repo",
        REPO,
        "--base_model",
        BASE,
        "--endpoint",
        hub.url,
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    assert reached.wait(300)
    process.kill()
    process.communicate()
    release.set()
    assert hub.tree(REPO) == {}
    hub.fail = lambda method, path: None
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert set(hub.tree(REPO)) == FILES and hub.puts == 1
    assert TOKEN not in done.stdout + done.stderr


def test_without_a_token_or_a_way_to_the_hub(publish, hub, trained, monkeypatch, waited):
    with monkeypatch.context() as patch:
        patch.delenv("HF_TOKEN")
        status, _, errors = publish(trained)
    assert status == 2 and errors[0].endswith("there is no Hub token: log in with `hf auth login`, or set HF_TOKEN")
    assert hub.requests == []
    hub.fail = lambda method, path: 401
    status, _, errors = publish(trained)
    assert status == 2 and "401" in errors[0]
    status, _, errors = publish(trained, "--endpoint", "http://127.0.0.1:9")
    assert (
        status == 2 and "refused" in errors[0].lower() and errors[0].endswith("; run the same command again to go on")
    )
    assert sum(waited) < 10


GATE = "Access to this model is restricted."


@pytest.mark.parametrize(
    "step, answer, reason",
    [
        (
            "/create",
            (403, {"error": 'You don\'t have the rights to create a model under the namespace "some-lab"'}),
            'the Hub answered 403: You don\'t have the rights to create a model under the namespace "some-lab"',
        ),
        (
            "/create",
            (403, {"error": "Forbidden: you must use a write token to upload to a repository."}),
            "the Hub answered 403: Forbidden: you must use a write token to upload to a repository",
        ),
        (
            "/create",
            (401, {"error": "Invalid username or password."}),
            "the Hub answered 401: Invalid username or password",
        ),
        (
            "/validate-yaml",
            (400, {"errors": [{"message": '"license" must be one of [apache-2.0, mit]'}], "warnings": []}),
            'the Hub answered 400: "license" must be one of [apache-2.0, mit]',
        ),
        (
            "/objects/batch",
            (403, {"message": "no", "error": "You have exceeded your private storage limit of 100 GB."}),
            "the Hub answered 403: You have exceeded your private storage limit of 100 GB",
        ),
        (
            "/commit/main",
            (403, {"error": "Your storage patterns tripped our internal systems!\nPlease contact us."}),
            "the Hub answered 403: Your storage patterns tripped our internal systems! Please contact us",
        ),
        (
            "/preupload/main",
            (403, {"error": GATE, "code": "GatedRepo"}),
            f"it is gated: ask for access at URL/{REPO}, then log in with `hf auth login`",
        ),
        (
            "/commit/main",
            (409, {"error": "conflict"}),
            "the Hub answered 409: conflict; run the same command again to go on",
        ),
        (
            "/create",
            (500, {"error": "Internal Error"}),
            "the Hub answered 500: Internal Error; run the same command again to go on",
        ),
        ("/preupload/main", (503, {}), "the Hub answered 503; run the same command again to go on"),
        ("/objects/batch", (502, {}), "the Hub answered 502; run the same command again to go on"),
    ],
)
def test_the_hubs_own_reason_reaches_the_user(publish, hub, trained, waited, step, answer, reason):
    """In its words and in seconds, and "again" only where that can help."""
    hub.fail = lambda method, path: answer if path.endswith(step) else None
    status, _, errors = publish(trained)
    assert (status, errors) == (2, [f"cprt publish: error: {REPO}: {reason.replace('URL', hub.url)}"])
    assert sum(waited) < 10


def test_an_object_that_the_hub_refuses(publish, hub, trained):
    """Git LFS tells of a full store inside an answer with status 200."""
    objects = [{"oid": "0" * 64, "size": 1, "error": {"code": 403, "message": "You have exceeded your storage limit."}}]
    hub.fail = lambda method, path: (200, {"objects": objects}) if path.endswith("/objects/batch") else None
    status, _, errors = publish(trained)
    assert status == 2 and len(errors) == 1 and "You have exceeded your storage limit" in errors[0]
    assert "again" not in errors[0]
