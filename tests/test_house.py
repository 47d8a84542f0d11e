"""The house rules: who imports whom, what stays light, what the commands say, what no file may hold."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from cprt.cli import COMMANDS

ROOT = Path(__file__).parents[1]
ROOMS = {"cprt": set(), "data_prep": {"cprt"}, "train": {"cprt"}, "eval": {"cprt"}}


MODULES = {
    ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file
    for room in ROOMS
    for file in sorted((ROOT / room).rglob("*.py"))
}


def imports(file: Path) -> set[str]:
    """Our modules that a file imports, wherever in the file; a package that it takes names from counts as itself."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            module = str(node.module)
            found |= {
                f"{module}.{alias.name}" if f"{module}.{alias.name}" in MODULES else module for alias in node.names
            }
    return found & set(MODULES)


GRAPH = {module: imports(file) for module, file in MODULES.items()}


def test_stages_import_the_domain_and_never_one_another():
    for module, targets in GRAPH.items():
        room = module.split(".")[0]
        foreign = {target for target in targets if target.split(".")[0] not in ROOMS[room] | {room}}
        assert not foreign, f"{module} imports {foreign}"


def test_production_never_imports_a_demo():
    for module, targets in GRAPH.items():
        if "demo" not in module.split("."):
            assert not {target for target in targets if "demo" in target.split(".")}, module


def test_no_import_goes_round_in_a_circle():
    """Also none that is hidden in a function: modules are taken away as long as one imports none of those left."""
    left = {module: set(targets) - {module} for module, targets in GRAPH.items()}
    while free := [module for module, targets in left.items() if not targets & set(left)]:
        for module in free:
            del left[module]
    assert not left, f"in circles, or behind one: {sorted(left)}"


def test_no_checkpoint_is_asked_for_its_own_code():
    """Unless told not to, the library asks on a terminal whether to run it."""
    for module, file in MODULES.items():
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and re.fullmatch(r"Auto\w+\.from_pretrained", ast.unparse(node.func)):
                assert "trust_remote_code=False" in ast.unparse(node), module


def test_no_room_is_crowded():
    for folder in {file.parent for file in MODULES.values()} | {ROOT / "benchmarks"}:
        modules = [file for file in folder.glob("*.py") if file.name != "__init__.py"]
        assert len(modules) <= 15, f"{folder.relative_to(ROOT)} holds {len(modules)} modules: it wants a wall"


def test_no_file_in_train_shadows_a_dependency():
    """``accelerate launch train/sft.py`` puts train/ first on the search path."""
    taken = set(packages_distributions()) | set(sys.stdlib_module_names)
    for file in (ROOT / "train").iterdir():
        assert file.stem not in taken - {"train"}, f"{file.name} would be imported instead of the real {file.stem}"


def test_the_wiring_stays_short():
    assert len((ROOT / "train" / "sft.py").read_text().splitlines()) < 150


IMPORTS = """
import cprt.answers, cprt.metrics.severity, cprt.models.local, cprt.models.response_cache, cprt.prompts, cprt.scoring
"""
HELP = """
from importlib import import_module
try:
    import_module({module!r}).main(["--help"])
except SystemExit:
    pass
"""
HEAVY = """
import sys
print([name for name in ("torch", "transformers.models", "matplotlib") if name in sys.modules])
"""


@pytest.mark.parametrize("code", [IMPORTS, *(HELP.format(module=module) for _, module, _ in COMMANDS)])
def test_the_domain_and_every_help_stay_free_of_torch(code: str):
    done = subprocess.run([sys.executable, "-c", code + HEAVY], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_help_lists_the_commands_in_pipeline_order():
    done = subprocess.run([sys.executable, "-m", "cprt.cli", "--help"], capture_output=True, text=True)
    assert done.returncode == 0
    positions = [done.stdout.index(f"\n  {name} ") for name, _, _ in COMMANDS]
    assert positions == sorted(positions)


@pytest.mark.slow
def test_every_command_also_runs_as_a_module():
    for _, module, _ in COMMANDS:
        done = subprocess.run([sys.executable, "-m", module, "--no_such_option"], capture_output=True, text=True)
        assert done.returncode == 2, done.stderr
        assert len(done.stderr.splitlines()) == 1 and "error: " in done.stderr


def test_an_unknown_command_gets_one_line():
    for name, near in (("pears", " (did you mean pairs?)"), ("EVALUATE", " (did you mean eval?)"), ("x", "")):
        done = subprocess.run([sys.executable, "-m", "cprt.cli", name], capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == f"cprt: error: no command {name!r}{near}; see cprt --help\n"


def test_help_is_a_command_too():
    for words, said in (([], "commands, in pipeline order"), (["prompts"], "usage: cprt prompts ")):
        done = subprocess.run([sys.executable, "-m", "cprt.cli", "help", *words], capture_output=True, text=True)
        assert done.returncode == 0 and said in done.stdout


@pytest.mark.parametrize("module", ["eval.demo", "eval.model_inversion.demo.run"])
def test_a_demo_has_help_and_takes_no_words(module: str):
    """A word that is none must not start it: it would replace what an earlier one left."""
    for word, status, said in (("--help", 0, f"usage: python -m {module}"), ("--fast", 2, "unknown argument --fast")):
        done = subprocess.run([sys.executable, "-m", module, word], capture_output=True, text=True, cwd=ROOT)
        assert done.returncode == status and said in (done.stderr if status else done.stdout)
        assert len((done.stdout + done.stderr).splitlines()) < 40


WITHOUT_LIBRARIES = """
import runpy, sys
sys.argv = {argv}
try:
    runpy.run_{kind}(sys.argv[0], run_name="__main__")
except SystemExit as end:
    print(end.code, [name for name in ("torch", "trl", "transformers", "eval.run") if name in sys.modules])
"""


@pytest.mark.parametrize(("kind", "argv"), [("path", ["train/sft.py"]), ("module", ["cprt.cli", "eval"])])
def test_a_configuration_that_is_not_there_is_told_before_a_library_is_imported(kind: str, argv: list[str]):
    code = WITHOUT_LIBRARIES.format(kind=kind, argv=[*argv, "--config", "nowhere.yaml"])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == "2 []\n" and "error: nowhere.yaml: No such file" in done.stderr


def test_configurations_open_with_the_command_that_runs_them():
    files = [file for file in (ROOT / "configs").rglob("*.yaml") if "accelerate" not in file.parts]
    assert len(files) >= 8
    for file in files:
        first = file.read_text().splitlines()[0]
        assert first.startswith("# ") and str(file.relative_to(ROOT)) in first, file


def test_every_trap_names_a_test_that_is_there(root):
    """tests/TRAPS.md: each row has a guard, and the tests it names exist."""
    rows = [line for line in (root / "tests" / "TRAPS.md").read_text().splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 25
    for row in rows:
        named = re.findall(r"`([\w/]+\.py)::(\w+)`", row)
        assert named, row
        for file, test in named:
            assert f"def {test}(" in (root / "tests" / file).read_text(), (file, test)


def test_no_clock_decides_a_test(root):
    """A slow machine is no fault: growth is asked of `growth.py`, patience of the fixture ``waited``.

    That something waits at least so long, or has long been given up for hanging, is asked of a clock.
    """
    clock = re.compile(r"(\w*time|monotonic|perf_counter|now)\(\)\s*-\s*\w+\s*<=?")
    found = [file for file in sorted((root / "tests").rglob("*.py")) if clock.search(file.read_text())]
    assert [file.name for file in found] == []


def test_the_readmes_tree_names_every_room_and_module():
    """What lies directly in a room; a sub-package has its own order."""
    tree = (ROOT / "README.md").read_text().partition("## The house")[2]
    named = set(re.findall(r"\w+", tree))
    rooms = [ROOT / name for name in ("cprt", "data_prep", "train", "eval")]
    inside = {
        path.stem
        for room in rooms
        for path in room.iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert inside - named == {"__init__"}
