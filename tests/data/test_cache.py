import multiprocessing
import time

import pytest

from variants.data.cache import cached


def made(folder):
    time.sleep(0.3)
    (folder / "result").write_text("whole")
    with (folder.parent / "log").open("a") as log:
        log.write("made\n")


def ask(_):
    return (cached("kind/key", made) / "result").read_text()


def test_of_several_processes_one_makes_it(cache):
    with multiprocessing.get_context("fork").Pool(3) as pool:
        assert pool.map(ask, range(3), 1) == ["whole"] * 3
    assert (cache / "kind" / "log").read_text() == "made\n"


def test_a_failure_leaves_nothing_and_the_next_tries_again(cache):
    def fail(folder):
        (folder / "result").write_text("half")
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        cached("kind/key", fail)
    assert [p.name for p in (cache / "kind").iterdir() if p.is_dir()] == []
    assert ask(0) == "whole"


def test_a_cache_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("VARIANTS_CACHE", str(tmp_path / "file"))
    with pytest.raises(ValueError, match=r"VARIANTS_CACHE=.*file: must be writable, but: Not a directory"):
        cached("kind/key", made)
