"""Describe the installation for bug reports: versions, devices, optional extras and thread settings.

The versions of packages are read from their metadata. Only torch, and packages that fail with another version of torch,
are imported. Bug reports are public, so nothing here contains a path, a user name or the name of the machine.
"""

import functools
import importlib
import os
import platform
import re
import shutil
import subprocess
import sys
import warnings
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from uulearn._version import __version__

CORE = (
    "torch", "numpy", "scikit-learn", "scipy", "threadpoolctl", "safetensors", "filelock", "pandas", "pyarrow",
    "python-calamine", "jinja2", "markupsafe", "typer", "rich",
)  # fmt: skip
"""Packages that every installation needs; a test compares them with pyproject.toml."""
EXTRAS = {
    "plot": ("matplotlib",),
    "data": ("pooch",),
    "images": ("pillow",),
    "vision": ("pillow", "torchvision"),
    "boosting": ("lightgbm",),
    "onnx": ("onnx", "onnxscript", "onnxruntime"),
    "huggingface": ("transformers", "accelerate"),
    "ray": ("ray", "pydantic", "fsspec"),
}
"""Packages of the extras for users; a test compares them with pyproject.toml."""
BUILT_FOR_TORCH = ("torchvision",)
"""Packages of extras that can be loaded only with the version of torch for which they were built."""
THREAD_VARIABLES = (
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_WAIT_POLICY", "OMP_PROC_BIND", "KMP_AFFINITY",
)  # fmt: skip
"""Environment variables that change the number or the behavior of threads."""
LETTER = r"(?:[^/\\\n'\";:]|(?<=\w)'(?=\w))"
"""A character of the name of a folder; an apostrophe between letters is part of a name such as O'Brien."""
HOMES = re.compile(rf"(?:[/\\]+(?:Users|home))+[/\\]+{LETTER}+", re.IGNORECASE)
"""A home folder; the name of its user may contain spaces."""
PATHS = re.compile(
    r"(?P<url>\bhttps?://(?:\S*@[^\s'\"]*|(?:[^\s'\",;()<>\\:]|:(?![/\s]|$))+))"
    r"|(?P<quote>['\"])(?:[A-Za-z]:)?[/\\](?P<quoted>.*?)(?P=quote)(?!\w)"
    rf"|(?<![\w.])(?:[A-Za-z]:)?[/\\](?:{LETTER}*[/\\])*(?P<last>[^/\\\s'\";:,)]*)"
)
"""A web address, a path in quotes up to the closing quote, or a path that ends at a space, comma or parenthesis."""
LIBRARY = re.compile(r".+\.(?:so|dylib|dll|pyd|py)[.\d]*")
"""Name of a file of code, which contains no user name."""
BFLOAT16_CAPABILITY = 8
"""First CUDA compute capability with bfloat16 instructions."""
DRIVER_SECONDS = 10
"""Timeout of nvidia-smi, which can hang if the driver is damaged."""


@dataclass(frozen=True)
class Device:
    """A CUDA device."""

    name: str
    capability: str
    memory_gib: float
    bfloat16: bool


@dataclass(frozen=True)
class TorchState:
    """Devices and threads of torch; ``error`` is the reason if torch or a device fails, and the rest is empty."""

    error: str | None = None
    threads: int | None = None
    interop_threads: int | None = None
    cpu_capability: str | None = None
    cpu_bfloat16: bool | None = None
    cuda_build: str | None = None
    cuda_devices: tuple[Device, ...] = ()
    mps: bool = False


@dataclass(frozen=True)
class Diagnosis:
    """The state of an installation; a version is None if the package is not installed."""

    uulearn: str
    python: str
    system: str
    processor: str
    cores: int
    virtual_environment: bool
    packages: dict[str, str | None]
    extras: dict[str, dict[str, str | None]]
    variables: dict[str, str | None]
    nvidia_driver: str | None
    torch: TorchState


def diagnose() -> Diagnosis:
    """Return the state of this installation."""
    return Diagnosis(
        uulearn=__version__,
        python=f"{platform.python_version()} ({platform.python_implementation()})",
        system=f"{platform.system()} {platform.release()} ({platform.machine()})",
        processor=processor_name(),
        cores=available_cores(),
        virtual_environment=sys.prefix != sys.base_prefix,
        packages={name: installed_version(name) for name in CORE},
        extras={extra: {name: _state_of_extra(name) for name in names} for extra, names in EXTRAS.items()},
        variables={name: _setting(name) for name in THREAD_VARIABLES},
        nvidia_driver=nvidia_driver(),
        torch=torch_state(),
    )


def installed_version(name: str) -> str | None:
    """Return the version of a package without importing it, or None if it is not installed.

    >>> installed_version("no-such-package") is None
    True
    """
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _state_of_extra(name: str) -> str | None:
    """Return the version of a package, with a note if it cannot be loaded, or None if it is not installed."""
    version = installed_version(name)
    if version is None or name not in BUILT_FOR_TORCH:
        return version
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module(name)
    except Exception:  # a damaged installation can raise anything, and its message can contain paths
        return f"{version} (cannot be loaded)"
    return version


def hide_folders(text: str) -> str:
    """Replace every path in a text by the name of its file, or by ``…`` if it is not a file of code.

    Web addresses stay, except for those that contain a user name or a password.

    >>> hide_folders("libcudart.so: cannot open /home/ada/env/lib/libtorch.so")
    'libcudart.so: cannot open libtorch.so'
    >>> hide_folders("read and/or write: permission denied: '/home/ada'")
    "read and/or write: permission denied: '…'"
    >>> hide_folders("dlopen(/Users/Ada Lovelace/env/lib/libtorch.so, 0x0006)")
    'dlopen(libtorch.so, 0x0006)'
    """

    def shorten(path: re.Match[str]) -> str:
        if address := path["url"]:
            return "…" if "@" in address else address
        quote = path["quote"] or ""
        name = re.split(r"[/\\]", path["quoted"] or path["last"] or "")[-1]
        return f"{quote}{name if LIBRARY.fullmatch(name) else '…'}{quote}"

    return PATHS.sub(shorten, HOMES.sub("/…", text))


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@functools.cache
def processor_name() -> str:
    """Return the model of the processor, or its architecture if the model is unknown."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def nvidia_driver() -> str | None:
    """Return the version of the NVIDIA driver, or None if there is no driver or it does not answer."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    command = [program, "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DRIVER_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    lines = done.stdout.split()
    return lines[0] if lines else None


def torch_state() -> TorchState:
    """Import torch and return its devices and threads; an import or a query that fails is part of the result."""
    try:
        torch: Any = importlib.import_module("torch")
        from uulearn.training.precision import cpu_multiplies_bfloat16

        return TorchState(
            threads=torch.get_num_threads(),
            interop_threads=torch.get_num_interop_threads(),
            cpu_capability=torch.backends.cpu.get_cpu_capability(),
            cpu_bfloat16=cpu_multiplies_bfloat16(),
            cuda_build=torch.version.cuda,
            cuda_devices=tuple(_describe_device(torch, number) for number in range(_device_count(torch))),
            mps=torch.backends.mps.is_available(),
        )
    except Exception as error:  # a damaged installation can raise anything, and is why the user asks
        reason = (str(error).strip().splitlines() or [""])[0]
        return TorchState(error=hide_folders(f"{type(error).__name__}: {reason}"))


def _device_count(torch: Any) -> int:
    return int(torch.cuda.device_count()) if torch.cuda.is_available() else 0


def _describe_device(torch: Any, number: int) -> Device:
    found = torch.cuda.get_device_properties(number)
    memory = round(found.total_memory / 2**30, 1)
    return Device(found.name, f"{found.major}.{found.minor}", memory, found.major >= BFLOAT16_CAPABILITY)


def _setting(name: str) -> str | None:
    value = os.environ.get(name)
    return None if value is None else hide_folders(value)
