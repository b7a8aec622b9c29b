"""What pyproject.toml cannot say: what is installed where, which modules mypyc compiles, and README as a package index shows it.

Tenure's packages have common names and are installed inside the one package `tenure`, in `tenure/_inside/`, where only Tenure's
own processes look for them (tenure/start.py). In a checkout they are the folders beside this file.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from setuptools import Extension, find_packages, setup
from setuptools.command.build import build
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.command.egg_info import egg_info
from setuptools.command.sdist import sdist

# The one list of what `make compile` turns into machine code. `__init__.py` files only pass names on.
COMPILED = (
    "protocol/*.py",
    "protocol/messages/*.py",
    "coordinator/**/*.py",
    "storage/**/*.py",
    "broker/api/*.py",
    "broker/cluster/propagation.py",  # a subclass of a compiled class
    "broker/fastpath/*.py",
    "broker/groups/*.py",
    "broker/net/*.py",
    *(f"broker/runtime/{name}.py" for name in ("clock", "contain", "turn")),
    "broker/security/*.py",
    *(f"broker/stores/{name}.py" for name in ("bulk_flush", "local", "owned", "shared", "topic_logs", "turn_flushes")),
    *(f"broker/topics/{name}.py" for name in ("append", "appender", "batch_checks", "batch_queues", "fetch_replies")),
    *(f"broker/topics/{name}.py" for name in ("metadata_entries", "partition", "registry", "transactions", "waiting_fetches")),
)
# Not compiled: programs that run with -m, a dataclass with slots, a list of modules as values, a class that inherits from asyncio, and
# handlers of rare requests, to which tests pass stand-ins.
INTERPRETED = (
    "**/__init__.py",
    "protocol/generate.py",
    "storage/disk.py",
    "storage/cleaner.py",
    "broker/api/delete_records.py",
    "broker/api/init_producer_id.py",
    "broker/api/parts.py",
    "broker/api/table.py",
    "broker/net/acceptor.py",
)

SPARK_SOURCE = "pyspark_koffsets"  # Spark looks for packages called pyspark_*, so this one has its own name outside
PACKAGES = ("protocol", "coordinator", "storage", "history", "secured", "broker", "pipeline", "cli")
INSIDE = "tenure._inside"
DEVELOPMENT_ONLY = {(f"{INSIDE}.protocol", "generate")}


def compiled_modules(root: Path = Path()) -> list[str]:
    """Paths of the modules to compile, as far as they exist under root."""
    found = {path.relative_to(root) for pattern in COMPILED for path in root.glob(pattern)}
    kept = found - {path.relative_to(root) for pattern in INTERPRETED for path in root.glob(pattern)}
    return sorted(str(path) for path in kept)


def packages() -> list[str]:
    """Everything that runs, by the names under which it is found in a checkout."""
    return find_packages(include=[f"{name}{deeper}" for name in PACKAGES for deeper in ("", ".*")], exclude=["protocol.generator*"])


def temporary_folder() -> str:
    folder = tempfile.mkdtemp(prefix="tenure-build-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


class BuildElsewhere(build):
    """Builds outside the checkout, in which `pip install .` would leave a folder. Compiled code stays there, for the next compilation."""

    def initialize_options(self) -> None:
        super().initialize_options()
        if not os.environ.get("WITH_MYPYC"):
            self.build_base = temporary_folder()


class EggInfoElsewhere(egg_info):
    """Writes its folder outside the checkout too, except for an sdist, which has it among its files."""

    def initialize_options(self) -> None:
        super().initialize_options()
        if "sdist" not in sys.argv:
            self.egg_base = temporary_folder()


class SdistThenClean(sdist):
    def run(self) -> None:
        super().run()
        shutil.rmtree("tenure.egg-info", ignore_errors=True)


class BuildRuntime(build_py):
    """Leaves out the one module of `protocol` that needs the development dependencies."""

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        modules: list[tuple[str, str, str]] = super().find_package_modules(package, package_dir)
        return [module for module in modules if (module[0], module[1]) not in DEVELOPMENT_ONLY]


class BuildCompiled(build_ext):
    """Compiles the changed C files of an extension in parallel; setuptools would compile all, one after the other."""

    def build_extensions(self) -> None:
        wanted = set(compiled_modules())
        for built in [path for package in PACKAGES for path in Path(package).rglob("*.so")]:
            if str(built.with_name(built.name.split(".")[0] + ".py")) not in wanted:
                built.unlink()  # compiled by an earlier version
        compile_in_turn = self.compiler.compile

        newest_header = max((header.stat().st_mtime for header in Path("build").glob("*.h")), default=0.0)

        def compile_one(source: str, **how: Any) -> str:
            (built,) = self.compiler.object_filenames([source], output_dir=how["output_dir"])
            changed = max(newest_header, os.stat(source).st_mtime)
            if not os.path.exists(built) or os.stat(built).st_mtime <= changed:
                compile_in_turn([source], **how)
            return str(built)

        def compile_all(sources: list[str], **how: Any) -> list[str]:
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                return list(pool.map(lambda source: compile_one(source, **how), sources))

        self.compiler.compile = compile_all
        super().build_extensions()


def extensions() -> list[Extension]:
    """mypyc's extensions when WITH_MYPYC is set (`make compile`), else none: installing needs no compiler."""
    if not os.environ.get("WITH_MYPYC"):
        return []
    from mypyc.build import mypycify

    built: list[Extension] = mypycify(compiled_modules(), opt_level="2", debug_level="0", group_name="tenure", multi_file=True)
    for extension in built:
        extension.name = f"{INSIDE}.{extension.name}"  # where it is installed: beside its source, which imports it by the name without
    return built


TEXT = r"(?:!\[[^\]]*\]\([^)]*\)|[^\]])*"  # of a link; it may be a picture
RELATIVE_LINK = re.compile(rf"(!?)\[({TEXT})\]\((?!\w+:|#)([^)\s]+)\)")


def description(readme: str, source: str | None) -> str:
    """README as a page of a package index, where its relative links lead nowhere: into the repository `source`, or else without them."""

    def replaced(link: re.Match[str]) -> str:
        picture, text, target = link.groups()
        if source is None:
            return "" if picture else text
        return f"{picture}[{text}]({source}/{'raw' if picture else 'blob'}/HEAD/{target})"

    pictures = re.sub(r"!\[[^\]]*\]\([^)]*\)", lambda picture: RELATIVE_LINK.sub(replaced, picture[0]), readme)
    return RELATIVE_LINK.sub(replaced, pictures)


if __name__ == "__main__":
    declared = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    setup(
        long_description=description(Path("README.md").read_text(encoding="utf-8"), declared.get("urls", {}).get("Source")),
        long_description_content_type="text/markdown",
        packages=["tenure", "tenure.testing", SPARK_SOURCE, *(f"{INSIDE}.{name}" for name in packages())],
        package_dir={INSIDE: "", **{f"{INSIDE}.{name}": name.replace(".", "/") for name in packages()}},
        package_data={f"{INSIDE}.pipeline.report": ["*.css", "*.html", "*.js", "*.json"]},
        cmdclass={
            "build": BuildElsewhere,
            "build_ext": BuildCompiled,
            "build_py": BuildRuntime,
            "egg_info": EggInfoElsewhere,
            "sdist": SdistThenClean,
        },
        ext_modules=extensions(),
    )
