"""Every page that a page links to exists, and every page is reachable from the index."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from policy.rewrites.catalogue import catalogue

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def links(page: Path) -> list[Path]:
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", prose)
    return [page.parent / target for target in targets if "://" not in target]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(page):
    missing = [str(target) for target in links(page) if not target.exists()]
    assert not missing


def test_every_page_is_reachable_from_the_index():
    seen, pending = set(), [ROOT / "docs" / "README.md"]
    while pending:
        page = pending.pop().resolve()
        if page.suffix == ".md" and page not in seen:
            seen.add(page)
            pending += links(page)
    assert {page.resolve() for page in (ROOT / "docs").rglob("*.md")} <= seen


def test_the_rewrites_page_names_the_whole_catalogue():
    text = (ROOT / "docs" / "rewrites.md").read_text()
    assert set(re.findall(r"^\| `(\w+)`", text, re.MULTILINE)) == set(catalogue())
