"""The layout, pinned: scoring needs no torch and knows nothing of running."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ALLOWED = {"bench.errors", "bench.members", "bench.record", "bench.selection"}


@pytest.mark.parametrize(
    "module", ["bench", "bench.record", "bench.selection", "leaderboard", "leaderboard.cli"]
)
def test_importing_needs_no_torch(module: str) -> None:
    heavy = "bool({'torch', 'transformers'} & sys.modules.keys())"
    code = f"import sys, {module}; sys.exit({heavy})"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


@pytest.mark.parametrize("module", ["bench.cli", "bench.submission", "bench.tasks"])
def test_what_lists_and_checks_names_starts_without_heavy_libraries(module: str) -> None:
    heavy = "bool({'torch', 'pandas', 'pyarrow', 'transformers'} & sys.modules.keys())"
    code = f"import sys, {module}; sys.exit({heavy})"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_leaderboard_imports_four_modules_of_bench_only() -> None:
    found = set()
    for path in (ROOT / "leaderboard").glob("**/*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module)
            elif isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
    assert {name for name in found if name.split(".")[0] == "bench"} <= ALLOWED


def test_bench_never_imports_leaderboard() -> None:
    for path in (ROOT / "bench").glob("**/*.py"):
        assert "leaderboard" not in {
            name.split(".")[0]
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            for name in (
                [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else []
            )
        }, path
