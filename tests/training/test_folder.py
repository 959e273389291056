import json

import pytest

from variants.training.folder import Folder


def test_a_new_run_has_its_config_and_its_state(tmp_path):
    folder = Folder.create(tmp_path / "a" / "b", "seed: 0\n")
    assert folder.config.read_text() == "seed: 0\n"
    assert folder.noted() == {"state": "prepared", "step": 0, "message": None}
    folder.note("diverged", 3, "why")
    folder.record({"kernel": "auto"}, {"kernel": "flash"})
    assert json.loads(folder.status.read_text()) == {"state": "diverged", "step": 3, "message": "why"}
    assert json.loads(folder.effective.read_text())["effective"] == {"kernel": "flash"}
    folder.release()


def test_a_folder_that_holds_a_run_is_refused_and_let_go(tmp_path):
    Folder.create(tmp_path / "a", "x").release()
    for _ in range(2):
        with pytest.raises(ValueError, match=r"a holds a run already: resume it with --resume, or name another folder"):
            Folder.create(tmp_path / "a", "y")
    assert Folder(tmp_path / "a").config.read_text() == "x"


def test_two_processes_are_never_in_one_folder(tmp_path):
    folder = Folder.create(tmp_path / "a", "x")
    with pytest.raises(ValueError, match="in use: another process is training there"):
        Folder.open(tmp_path / "a").hold()
    folder.release()
    Folder.open(tmp_path / "a").hold()


def test_a_folder_that_cannot_be_made_or_is_somebody_elses_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"folder=.*file/run cannot be made: Not a directory"):
        Folder.create(tmp_path / "file" / "run", "x")
    with pytest.raises(ValueError, match=r"folder=.*file cannot be made: File exists"):
        Folder.create(tmp_path / "file", "x")
    with pytest.raises(ValueError, match="is no run's, but holds 'file': name another folder"):
        Folder.create(tmp_path, "x")
    with pytest.raises(ValueError, match="holds no run that could be resumed"):
        Folder.open(tmp_path / "nowhere")


def test_what_a_kill_left_of_a_write_is_swept(tmp_path):
    folder = Folder.create(tmp_path / "a", "x")
    folder.release()
    folder.last.parent.mkdir()
    leftovers = [folder.path / ".status.json.abc", folder.last.parent / ".last.ckpt.abc"]
    for leftover in leftovers:
        leftover.write_text("")
    folder.hold()
    assert not any(leftover.exists() for leftover in leftovers)
    assert folder.config.exists()
    folder.release()
