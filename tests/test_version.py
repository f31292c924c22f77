"""Versions: of a checkout by its tags, with none, without git; and of what is built."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import paracosm
from paracosm import version

COMMITTER = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.org")


def git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *COMMITTER, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def commit(root: Path) -> str:
    git(root, "commit", "--quiet", "--allow-empty", "--message", "One more")
    return git(root, "rev-parse", "--short=8", "HEAD")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    git(tmp_path, "init", "--quiet")
    return tmp_path


def test_a_tag_is_the_version_of_its_commit_and_leads_to_the_next(checkout: Path) -> None:
    commit(checkout)
    git(checkout, "tag", "v0.3.0")
    git(checkout, "tag", "2026-11-29")  # no version
    assert version.of_checkout(checkout) == "0.3.0"
    commit(checkout)
    newest = commit(checkout)
    assert version.of_checkout(checkout) == f"0.3.1.dev2+g{newest}"
    git(checkout, "tag", "v0.4.0rc9")
    newest = commit(checkout)
    assert version.of_checkout(checkout) == f"0.4.0rc10.dev1+g{newest}"


def test_a_checkout_without_tags_counts_its_commits(checkout: Path) -> None:
    assert version.of_checkout(checkout) is None  # before the first
    commit(checkout)
    newest = commit(checkout)
    assert version.of_checkout(checkout) == f"0.2.0.dev2+g{newest}"


def test_another_repository_says_nothing(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither one around the folder, as of what is installed there, nor one that GIT_DIR names."""
    commit(checkout)
    git(checkout, "tag", "v7")
    inside = checkout / ".venv" / "lib"
    inside.mkdir(parents=True)
    assert version.of_checkout(inside) is None
    git(inside, "init", "--quiet")
    monkeypatch.setenv("GIT_DIR", str(checkout / ".git"))
    assert version.of_checkout(inside) is None


def test_without_git_it_is_that_of_what_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(version, "_ROOT", tmp_path)
    assert version.version_to_build() == "0.2.0.dev0"
    (tmp_path / "paracosm-1.2.3.dist-info").mkdir()
    (tmp_path / "paracosm-1.2.3.dist-info" / "METADATA").write_text(
        "Name: paracosm\nVersion: 1.2.3\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert version.version() == paracosm.__version__ == "1.2.3"
    monkeypatch.setattr("sys.path", [])
    assert version.version() == "0.2.0.dev0"


def test_a_machine_without_git_installs_too(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(checkout)
    monkeypatch.setenv("PATH", os.devnull)
    assert version.of_checkout(checkout) is None


def test_importing_paracosm_asks_for_no_version() -> None:
    program = """
import sys
import paracosm
print(sorted({"subprocess", "importlib.metadata", "paracosm.version"} & set(sys.modules)))
"""
    run = subprocess.run(
        [sys.executable, "-S", "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(Path(paracosm.__file__).parents[1])},
    )
    assert run.stdout == "[]\n"
