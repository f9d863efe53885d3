"""The words of the project are plain: a short list of words that hide a subject or a technical term is banned."""

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

BANNED = (
    *("told", "tell", "tells", "untold", "whoever", "nobody", "somebody", "anew", "mend", "mends", "hitherto"),
    *("but for", "for want of", "of which", "so many", "as ever", "look after", "hear of", "lets go on"),
)
_WORDS = re.compile(rf"(?<![a-z])({'|'.join(BANNED)})(?![a-z])", re.IGNORECASE)
_CODE = re.compile(r"`[^`]*`")
_TEXTS = (tokenize.STRING, tokenize.COMMENT)
PYTHON = ("controller_manager", "controllers", "apiserver_stub", "examples")
DOCUMENTS = (
    "*.md",
    "docs/*.md",
    "charts/**/*.md",
    "controller_manager/**/*.md",
    "controllers/**/*.md",
    "apiserver_stub/**/*.md",
)


def test_product_code_has_no_banned_words(root: Path) -> None:
    files = (path for folder in PYTHON for path in sorted((root / folder).rglob("*.py")))
    assert [f"{path.relative_to(root)}:{found}" for path in files for found in _in_python(path.read_text())] == []


def test_tests_have_no_banned_words(root: Path) -> None:
    """Data of tests may have them, names, docstrings and comments not."""
    files = (path for path in sorted((root / "tests").rglob("*.py")) if path != Path(__file__))
    found = (f"{path.relative_to(root)}:{word}" for path in files for word in _in_python(path.read_text(), data=False))
    assert list(found) == []


def test_documents_have_no_banned_words(root: Path) -> None:
    files = sorted({path for pattern in DOCUMENTS for path in root.glob(pattern)})
    assert [f"{path.relative_to(root)}:{found}" for path in files for found in _in_lines(path.read_text())] == []


@pytest.mark.parametrize(
    "source",
    ["def told(): ...", "x = _tell", "# anew", "'''What nobody\nasked.'''", "f'{x} of which'", "all but for one"],
)
def test_a_banned_word_is_found(source: str) -> None:
    assert len([*_in_python(f"{source}\n"), *_in_lines(source)]) >= 1


@pytest.mark.parametrize("source", ["stream.tell()", "retold = 1", "# intelligent", "'mending'"])
def test_other_words_are_not_found(source: str) -> None:
    assert list(_in_python(f"{source}\n")) == []


def _in_python(source: str, *, data: bool = True) -> Iterator[str]:
    """Yield `line: word` of names, texts and comments, without `data` of docstrings and comments only. The method of
    files that is called `tell` is allowed.
    """
    before = ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        is_text = token.type in _TEXTS and (data or token.string.startswith(('"""', "#")))
        is_own_name = token.type == tokenize.NAME and before != "."
        if is_text or is_own_name:
            text = token.string if is_text else token.string.replace("_", " ")
            yield from (f"{token.start[0]}: {found[0]}" for found in _WORDS.finditer(text))
        before = token.string


def _in_lines(text: str) -> Iterator[str]:
    """Yield `line: word` of a document; code between backticks is allowed, since it may name former words."""
    for number, line in enumerate(text.splitlines(), 1):
        yield from (f"{number}: {found[0]}" for found in _WORDS.finditer(_CODE.sub("", line)))
