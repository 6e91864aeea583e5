import json
import logging
import subprocess
import sys
from importlib import metadata

import pytest

from policy.tools import DocumentLibrary, ToolBox, ToolSources, language_reference
from policy.tools import triton_reference as reference
from policy.tools.documents import PASSAGE_CHARS, Passage, sections, split_at_paragraphs


def search(library, query, **more):
    box = ToolBox.of(["search_documents"], ToolSources(documents=library))
    return box.call("search_documents", json.dumps({"query": query, **more}))


@pytest.fixture(scope="module")
def triton(tmp_path_factory):
    return language_reference(tmp_path_factory.mktemp("cache"))


def test_the_reference_holds_signature_and_docstring_without_the_compilers_arguments(triton):
    texts = {passage.title: passage.text for passage in triton}
    assert texts["tl.load"].startswith("tl.load(pointer, mask=None, other=None")
    assert "masked" in texts["tl.load"] or "mask" in texts["tl.load"].split("\n", 1)[1]
    assert texts["tl.sum"].startswith("tl.sum(input, axis=None, keep_dims=False")
    assert {"tl.dot", "tl.atomic_add", "tl.range", "libdevice.tanh", "triton.Config"} <= set(texts)
    assert not [text for text in texts.values() if "_semantic" in text]


def test_every_function_of_the_reference_stands_there_once(triton):
    titles = [passage.title for passage in triton]
    assert len(titles) == len(set(titles)) > 150
    assert "tl.exp" in titles
    assert "tl.math.exp" not in titles


def test_a_function_is_found_by_its_name(triton):
    assert "\ntl.atomic_cas\n" in search(DocumentLibrary(reference=lambda: triton), "tl.atomic_cas", limit=1)


def test_the_reference_is_built_once_for_each_version(tmp_path, monkeypatch):
    built = []
    monkeypatch.setattr(reference, "_built", lambda: built.append(1) or b'[{"title": "tl.x", "text": "x"}]')
    monkeypatch.setattr(reference.metadata, "version", lambda name: "3.6.0")
    assert language_reference(tmp_path) == language_reference(tmp_path) == [Passage(title="tl.x", text="x")]
    assert len(built) == 1
    monkeypatch.setattr(reference.metadata, "version", lambda name: "3.7.0")
    language_reference(tmp_path)
    assert len(built) == 2


def test_a_damaged_reference_is_built_again(tmp_path, monkeypatch):
    monkeypatch.setattr(reference, "_built", lambda: b'[{"title": "tl.x", "text": "x"}]')
    language_reference(tmp_path)
    (path,) = (tmp_path / "reference").iterdir()
    assert metadata.version("triton") in path.name
    path.write_text("[{")
    assert language_reference(tmp_path) == [Passage(title="tl.x", text="x")]


def test_without_a_reference_the_other_documents_are_still_searched(tmp_path, monkeypatch, caplog):
    def broken():
        raise subprocess.CalledProcessError(1, "python")

    monkeypatch.setattr(reference, "_built", broken)
    (tmp_path / "notes.txt").write_text("warp specialisation\n")
    library = DocumentLibrary(tmp_path, lambda: language_reference(tmp_path / "cache"))
    with caplog.at_level(logging.WARNING):
        assert "warp specialisation" in search(library, "warp")
    assert "language reference is missing" in caplog.text


def test_neither_importing_nor_building_loads_triton_here(tmp_path):
    code = (
        "import sys, pathlib, policy.tools as tools, policy.review\n"
        "found = tools.language_reference(pathlib.Path(sys.argv[1]))\n"
        "print(len(found) > 150, *[name for name in ('triton', 'torch') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True"]


def test_the_reference_is_not_built_before_something_is_searched(tmp_path):
    asked = []
    library = DocumentLibrary(reference=lambda: asked.append(1) or [])
    assert asked == []
    search(library, "a")
    search(library, "b")
    assert asked == [1]


def test_markdown_is_cut_at_headings_outside_of_fences():
    text = "before\n# One\na\n```\n# a comment\n```\n## Two\nb\n"
    assert sections(text, ".md") == [
        ("", "before"),
        ("One", "# One\na\n```\n# a comment\n```"),
        ("Two", "## Two\nb"),
    ]


def test_rst_is_cut_at_underlined_titles():
    assert sections("One\n===\na\n\nTwo\n~~~\nb\n", ".rst") == [("One", "One\n===\na"), ("Two", "Two\n~~~\nb")]
    assert sections("| a | b |\n===\n", ".txt") == [("", "| a | b |\n===")]


def test_long_sections_are_split_between_paragraphs():
    paragraphs = [f"{number} " + "word " * 200 for number in range(5)]
    parts = split_at_paragraphs("\n\n".join(paragraphs))
    assert len(parts) == 3
    assert all(len(part) <= PASSAGE_CHARS for part in parts)
    assert "\n\n".join(parts) == "\n\n".join(paragraphs)


def test_passages_of_a_folder_name_file_and_heading(tmp_path):
    (tmp_path / "guide.md").write_text("# Loads\nUse masks.\n\n# Stores\nUse masks too, and coalesce.\n")
    (tmp_path / "picture.png").write_bytes(b"coalesce")
    answer = search(DocumentLibrary(tmp_path), "coalesce")
    assert "guide.md: Stores\n```text\n# Stores" in answer
    assert "Loads" not in answer


def test_nothing_found_says_so():
    assert search(DocumentLibrary(), "anything") == "Nothing has any of these words."
