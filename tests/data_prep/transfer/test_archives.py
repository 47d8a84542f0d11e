"""Unpacking: what an archive may not do, what it may not leave behind, and what a second attempt keeps."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from cprt.errors import InputError
from data_prep.transfer.archives import unpack

Members = list[tuple[tarfile.TarInfo, bytes]]


def member(name: str, content: bytes = b"photo", **facts: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for key, value in facts.items():
        setattr(info, key, value)
    return info, content


def tar(members: Members, format: int = tarfile.PAX_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=format) as archive:
        for info, content in members:
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "out" / "images" / "val2017"


def pack(target: Path, raw: bytes, zipped: bool = True) -> Path:
    path = target.parents[2] / "a.tar.gz"
    path.write_bytes(gzip.compress(raw, 1, mtime=0) if zipped else raw)
    return path


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


GOOD = [member("2017_1.jpg", b"one"), member("2017_2.jpg", b"two")]
SPECIAL = {
    "symlink": tarfile.SYMTYPE,
    "hard link": tarfile.LNKTYPE,
    "character device": tarfile.CHRTYPE,
    "block device": tarfile.BLKTYPE,
    "fifo": tarfile.FIFOTYPE,
    "unknown": b"Z",
}


@pytest.mark.parametrize("prefix", ["", "val2017/", "./val2017/", "images/val2017/", "./"])
@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_folders_that_repeat_the_target_are_dropped(target: Path, prefix: str, format: int):
    members = [member(prefix + info.name, content) for info, content in GOOD]
    long = "n" * 60 + "/" + "m" * 60 + ".jpg"  # takes a header of its own, or a split one
    folder, _ = member((prefix or "below").rstrip("/"), b"", type=tarfile.DIRTYPE)
    raw = tar([(folder, b""), *members, member(prefix + long, b"three"), member(prefix + "empty.txt", b"")], format)
    unpacked = unpack(pack(target, raw), target, 1000, 10)
    assert files(target) == {"2017_1.jpg": b"one", "2017_2.jpg": b"two", long: b"three", "empty.txt": b""}
    assert unpacked.files == {"2017_1.jpg": 3, "2017_2.jpg": 3, long: 5, "empty.txt": 0}
    assert os.listdir(target.parent) == ["val2017"]


def test_hidden_files_are_left_out_and_counted(target: Path):
    raw = tar([*GOOD, member("._2017_1.jpg"), member("val2017/.cache/a.jpg")])
    assert unpack(pack(target, raw), target, 1000, 10).hidden == 2
    assert sorted(files(target)) == ["2017_1.jpg", "2017_2.jpg"]


@pytest.mark.parametrize(
    "name",
    [
        "../escaped.jpg",
        "val2017/../../escaped.jpg",
        "/tmp/escaped.jpg",
        "//escaped.jpg",
        "a\\..\\b.jpg",
        "C:/a.jpg",
        "a\nb.jpg",
        "a\x1b[31m.jpg",
        "..",
        "n" * 300,
        "d/" * 600 + "a.jpg",
    ],
)
def test_a_path_that_leads_elsewhere_is_refused(target: Path, name: str):
    refused(target, tar([*GOOD, member(name)]), "is no path inside the target folder")


@pytest.mark.parametrize("kind", SPECIAL)
@pytest.mark.parametrize("linked", ["/etc/passwd", "../../../secret", "2017_1.jpg"])
def test_only_plain_files_are_unpacked(target: Path, kind: str, linked: str):
    bad = member("2017_3.jpg", b"", type=SPECIAL[kind], linkname=linked, devmajor=1, devminor=3)
    refused(target, tar([*GOOD, bad]), "is a link" if "link" in kind else "is a device or another special file")


def test_a_file_behind_a_link_goes_nowhere(target: Path, tmp_path: Path):
    (tmp_path / "elsewhere").mkdir()
    link = member("folder", b"", type=tarfile.SYMTYPE, linkname=str(tmp_path / "elsewhere"))
    refused(target, tar([link, member("folder/a.jpg")]), "is a link")
    assert files(tmp_path / "elsewhere") == {}


def test_ceilings(target: Path):
    raw = tar([member(f"{number}.jpg", bytes(100)) for number in range(10)])
    refused(target, raw, "it unpacks to more than 999 bytes", max_bytes=999)
    refused(target, raw, "it has more than 9 members", max_files=9)
    folders = tar([member(f"{number}", b"", type=tarfile.DIRTYPE) for number in range(10)])
    refused(target, folders, "it has more than 9 members", max_files=9)
    unpack(pack(target, raw), target, 1000, 10)
    assert len(files(target)) == 10


def huge_header(kind: bytes, size: int) -> bytes:
    """A header that says that its own text, a name say, is ``size`` bytes long, and all of that text."""
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = kind, size
    return info.tobuf(tarfile.GNU_FORMAT) + bytes(size)


def cut_header(raw: bytes, at: int) -> bytes:
    return raw[:at] + b"\xff" * 8 + raw[at + 8 :]


TWO = tar(GOOD)


@pytest.mark.parametrize(
    ("raw", "complaint"),
    [
        (tar([member("bomb.jpg", bytes(5_000_000))]), "unpacks to more than 100,000 bytes"),
        (TWO[:2048] + bytes(50_000_000), "bytes of files and headers"),  # zeros behind the end
        (huge_header(tarfile.GNUTYPE_LONGNAME, 20_000_000), "it has a header of 20,000,"),
        (huge_header(tarfile.XHDTYPE, 20_000_000), "it has a header of 20,000,"),
        (huge_header(tarfile.XGLTYPE, 20_000_000), "it has a header of 20,000,"),
        (huge_header(tarfile.XHDTYPE, 512) * 3000, "is not unpacked"),  # each calls for the next: recursion
        (cut_header(TWO, 1024), "its header 'after 2017_1.jpg' is broken"),  # tarfile would take it for the end
        (cut_header(TWO, 0), "is not unpacked"),
        (TWO[:1100], "is broken"),
        (TWO[:600], "is not unpacked"),
        (bytes(10240), "it holds no files"),
        (b"", "is not unpacked"),
        (tar([*GOOD, member("2017_1.jpg", b"again")]), "'2017_1.jpg' is there twice"),
        (tar([*GOOD, member("val2017/2017_1.jpg", b"again")]), "is there twice"),
        (tar([member("a"), member("a/b")]), "is not unpacked"),
        (tar([member("val2017")]), "is a file where the target folder is to be"),
    ],
)
def test_bombs_and_broken_archives(target: Path, raw: bytes, complaint: str):
    refused(target, raw, complaint, max_bytes=100_000, max_files=1000)


def test_sparse_files_are_refused(target: Path, tmp_path: Path):
    """GNU tar writes a hole of a gigabyte in a few bytes."""
    with open(tmp_path / "hole.jpg", "wb") as file:
        file.truncate(1 << 30)
    subprocess.run(["tar", "-C", str(tmp_path), "-cSf", str(tmp_path / "hole.tar"), "hole.jpg"], check=True)
    (tmp_path / "hole.jpg").unlink()
    refused(target, (tmp_path / "hole.tar").read_bytes(), "is a device or another special file", max_bytes=1 << 40)


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda zipped: zipped[:-30], "end-of-stream marker"),
        (lambda zipped: zipped[:-8] + bytes(8), "CRC check failed"),
        (lambda zipped: zipped[:60] + bytes(20) + zipped[80:], "is not unpacked"),
        (lambda zipped: b"<html>not found</html>", "Not a gzipped file"),
    ],
)
def test_damage_on_the_way_is_noticed(target: Path, damage: Callable[[bytes], bytes], complaint: str):
    zipped = gzip.compress(tar([member("2017_1.jpg", os.urandom(3000)), *GOOD[1:]]), 1)
    refused(target, damage(zipped), complaint, zipped=False)


def refused(
    target: Path, raw: bytes, complaint: str, max_bytes: int = 10_000, max_files: int = 20, zipped: bool = True
) -> None:
    """One line says why, what was there before stays, and nothing else is there, anywhere."""
    top = target.parents[2]
    target.mkdir(parents=True, exist_ok=True)
    (target / "before.jpg").write_bytes(b"before")
    archive = pack(target, raw, zipped)
    before = files(top)
    with pytest.raises(InputError) as caught:
        unpack(archive, target, max_bytes, max_files)
    said = str(caught.value)
    assert complaint in said and "a.tar.gz: is not unpacked: " in said and "\n" not in said and len(said) < 600
    assert files(top) == before and os.listdir(target.parent) == ["val2017"]
    (target / "before.jpg").unlink()


def test_a_killed_run_goes_on(target: Path):
    """What the killed run had unpacked is found beside the target and used as it is."""
    archive = pack(target, tar(GOOD))
    stage = target.with_name("val2017.unpacking")
    stage.mkdir(parents=True)
    (stage / "2017_1.jpg").write_bytes(b"ONE")  # as long as the real one, so that its use shows
    (stage / ".partial").write_bytes(b"t")
    unpack(archive, target, 1000, 10)
    assert files(target) == {"2017_1.jpg": b"ONE", "2017_2.jpg": b"two"}
    assert not stage.exists()


def test_whole_files_stay_and_others_are_replaced(target: Path, tmp_path: Path):
    archive = pack(target, tar(GOOD))
    target.mkdir(parents=True)
    (target / "2017_1.jpg").write_bytes(b"ONE")
    (tmp_path / "outside").write_bytes(b"xyz")
    (target / "2017_2.jpg").symlink_to(tmp_path / "outside")
    unpack(archive, target, 1000, 10)
    assert files(target) == {"2017_1.jpg": b"ONE", "2017_2.jpg": b"two"}
    assert (tmp_path / "outside").read_bytes() == b"xyz"  # the link was replaced, not written through


def test_memory_does_not_grow_with_the_archive(target: Path):
    """150 MB through a process that takes less than 30 MB more than after its imports."""
    pack(target, tar([member(f"{number}.jpg", bytes(30_000_000)) for number in range(5)]))
    code = (
        "import resource, sys; from pathlib import Path; from data_prep.transfer.archives import unpack\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "unpack(Path(sys.argv[1]), Path(sys.argv[2]), 10**9, 10)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    command = [sys.executable, "-c", code, str(target.parents[2] / "a.tar.gz"), str(target)]
    grown = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)  # kilobytes
    assert grown < 30_000
    assert sum(path.stat().st_size for path in target.iterdir()) == 150_000_000
