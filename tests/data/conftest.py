import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """No test reads or writes the user's cache."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("VARIANTS_CACHE", str(folder))
    return folder


@pytest.fixture
def story(tmp_path):
    """A text of 400 lines, all of them different."""
    who = ["the cat", "a dog", "my old aunt", "Zoë", "nobody", "another painter", "their brother"]
    what = ["sat", "ran off", "sang  twice", "ate 3 figs", "waited", "painted something", "remembered it"]
    where = ["on the mat", "by the river", "in\ta tree", "— at home", "…", "yesterday", "under the bridge"]
    file = tmp_path / "story.txt"
    text = "".join(f"{i}: {who[i % 7]} {what[i // 7 % 7]} {where[i // 49 % 7]}.\n" for i in range(400))
    file.write_text(text, encoding="utf-8")
    return file
