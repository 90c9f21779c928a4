"""``uulearn doctor``: print versions, devices, extras and thread settings for a bug report."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

import typer

from uulearn.cli.options import AsJson

if TYPE_CHECKING:
    from collections.abc import Mapping

    from uulearn.app.diagnostics import Diagnosis, TorchState

WIDTH = 21
"""Width of the first column."""


def doctor(as_json: AsJson = False) -> None:
    """Print versions, devices, optional extras and thread settings for a bug report."""
    from uulearn.app.diagnostics import diagnose

    found = diagnose()
    typer.echo(json.dumps(dataclasses.asdict(found), indent=2) if as_json else render(found))


def render(found: Diagnosis) -> str:
    """Format a diagnosis as aligned lines."""
    environment = "in a virtual environment" if found.virtual_environment else "not in a virtual environment"
    lines = {
        "uulearn": found.uulearn,
        "Python": f"{found.python}, {environment}",
        "system": found.system,
        "processor": f"{found.processor}, {found.cores} available {'core' if found.cores == 1 else 'cores'}",
        **_torch_lines(found.torch, found.nvidia_driver),
        **{name: value if value is not None else "not set" for name, value in found.variables.items()},
        **{name: version or f"missing; run pip install {name}" for name, version in found.packages.items()},
        **{f"extra {extra}": _extra(extra, versions) for extra, versions in found.extras.items()},
    }
    return "\n".join(f"{label:<{WIDTH}}{text}" for label, text in lines.items())


def _torch_lines(state: TorchState, driver: str | None) -> dict[str, str]:
    if state.error is not None:
        return {"torch error": state.error, "NVIDIA driver": driver or "none found"}
    if state.cuda_devices:
        cuda = "; ".join(
            f"{device.name}, capability {device.capability}, {device.memory_gib:g} GiB, "
            f"bfloat16 {_yes(device.bfloat16)}"
            for device in state.cuda_devices
        )
    else:
        cuda = f"no device ({f'torch for CUDA {state.cuda_build}' if state.cuda_build else 'torch without CUDA'})"
    lines = {
        "CPU capability": f"{state.cpu_capability}, bfloat16 {_yes(state.cpu_bfloat16)}",
        "CUDA": cuda,
        "NVIDIA driver": driver or "none found",
        "threads of torch": f"{state.threads}, and {state.interop_threads} between operators",
    }
    if state.mps:
        lines["MPS"] = 'available; device="auto" does not use it'
    return lines


def _extra(extra: str, versions: Mapping[str, str | None]) -> str:
    missing = [name for name, version in versions.items() if version is None]
    if missing:
        return f"not installed (missing: {', '.join(missing)}); run pip install 'uulearn[{extra}]'"
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _yes(answer: bool | None) -> str:
    return "yes" if answer else "no"
